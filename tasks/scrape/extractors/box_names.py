"""What the tag, class, id and role of an element say about it: boilerplate, body of an article, hidden, nothing.

The words are those that page templates use everywhere (content management systems, schema.org, WAI-ARIA roles,
microformats); none belongs to one site.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final


class Verdict(IntEnum):
    """What an element is by its names."""

    NONE = 0
    BODY = 1
    """Named as the text of an article."""
    CONTENT = 2
    """Named as the main part of the page."""
    LEAD = 3
    """Named as the summary above the text."""
    DOUBTFUL = 4
    """Named as something that is often beside the text and sometimes part of it."""
    BOILERPLATE = 5
    """Named as something beside the text: menu, footer, share buttons, comments, related pages."""
    HIDDEN = 6


_BOILERPLATE: Final = re.compile(
    r"""
    (?:^|[_-])(?:
        nav|navi|navbar|navigation|menus?|submenu|topbar|subnav|breadcrumbs?|crumbs?|pager|pagination|paging
      |page-?numbers
      | skip-?links?|toc|table-of-contents
      | side-?bar\w*|rail|footer|foot|rodape|fusszeile|pie-?de-?pagina|colophon|masthead|(?:site|page|global)-?header
      | share|sharing|sharedaddy|shares|share-?\w*|social|socials|social-?\w*|addthis\w*|addtoany\w*|follow|follow-?us
      | related|related-?\w*|relacionad[ao]s?|recommend\w*|recirc\w*|read-?(?:more|next|also)
      |more-?(?:from|on|news|stories|articles)
      | see-?also|also-?read|you-?may\w*|outbrain|taboola|trc|next-?(?:article|post)|prev-?(?:article|post)
      |previous-?post
      | most-?(?:read|popular)|popular|trending
      | newsletters?|newsletter-?\w*|subscri(?:be|ption|ptions)|sign-?up|paywall|login|log-?in|promo|promos
      |promotion|promo-?\w*
      | ads?|advert|adverts|advertis\w*|adsense|sponsor\w*|dfp\w*|werbung|anzeige|publicidad|publicite
      | comments?|commentlist|comments-?\w*|comment-?(?:list|area|section|form|body|content|respond)|respond
      |disqus\w*|replies|kommentare?
      | comentarios|commentaires
      | cookie\w*|consent|gdpr\w*|popup|pop-?up|modal|overlay|lightbox|tooltip
      | author-?(?:box|bio|info|card|description|about|block|profile|details)|about-?(?:the-?)?author|vcard|byline
      | tag-?(?:list|cloud|links)|tagcloud
      |(?:post|entry|article)-?(?:tags|meta|footer|info|navigation|nav|author|utility|tools)
      | cat-?links|search-?(?:form|box|results?|bar)|searchbox|searchform|printfriendly|copyright
      | wp-caption-text|contact-?form|signup|cta|call-?to-?action
    )(?=$|[_-]|\d)
    """,
    re.VERBOSE,
)
_DOUBTFUL: Final = re.compile(
    r"""
    (?:^|[_-])(?:
        banner|widgets?|widget-?area|rating|ratings|votes?|toolbox|toolbar|tools|legal|disclaimer|credits?
      |captions?|image-?caption
      | photo-?caption|gallery|slideshow|carousel|slider|feedback|donate|donation|register|dialog|tags|bio|meta
      |metadata
      | post-?date|posted-?(?:on|by|in)|dateline|timestamp|categories|print|top|bottom|teasers?|by-?line
    )(?=$|[_-]|\d)
    """,
    re.VERBOSE,
)
_BODY: Final = re.compile(
    r"""
    (?:^|[_-])(?:
        (?:article|entry|post|story|news|blog|blogpost|content)[_-]*(?:body|content|text|copy)(?:[_-]?(?:inner|text|wrapper))?
      | articlebody|articletext|articlecontent|storybody|storycontent|postbody|postcontent|entrycontent
      |body-?copy|body-?text
      | e-content|rich-?text|rte|wysiwyg|mw-parser-output|single-?content|node-?content|field-?name-?body
    )(?=$|[_-])
    """,
    re.VERBOSE,
)
_CONTENT: Final = re.compile(
    r"^(?:main|content|main-?content|content-?main|page-?content|site-?content|post|entry|hentry|article|story|h-entry)$"
)
_LEAD: Final = re.compile(
    r"(?:^|[_-])(?:lead|lede|lead-?(?:text|in)|intro|introduction|standfirst|dek|deck|summary|abstract|subtitle|sub-?title|subhead(?:line)?|"
    r"sub-?heading|excerpt|chapo|chapeau|kicker-?text|bajada|vorspann|teaser-?text|entradilla|perex)(?=$|[_-])"
)
_UNSAID: Final = re.compile(
    r"^(?:category|tag|type|format|status|has|with|no|is|js|col|theme|page|single|postid|layout|grid|row|block|region|view)-(?!header|footer|tags)|embed|tweet"
)
"""Names that tell about the page or its looks, not about the element."""
_SENTENCE_LIKE: Final = re.compile(r"(?:[^_-]+[_-]+){4,}[^_-]").match
"""More words than templates use: made from a heading."""
_BY_TAG: Final = {
    **dict.fromkeys(("footer", "aside"), Verdict.BOILERPLATE),
    **dict.fromkeys(("form", "fieldset"), Verdict.DOUBTFUL),
    **dict.fromkeys(("article", "main"), Verdict.CONTENT),
}
_BY_ROLE: Final = {
    **dict.fromkeys(("navigation", "search", "menu", "menubar", "toolbar"), Verdict.HIDDEN),
    "contentinfo": Verdict.BOILERPLATE,
    **dict.fromkeys(("dialog", "alertdialog", "alert", "tablist", "tooltip"), Verdict.BOILERPLATE),
    **dict.fromkeys(("complementary", "banner", "form"), Verdict.DOUBTFUL),
    "main": Verdict.CONTENT,
}
_HIDING_STYLE: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
MAX_CACHED: Final = 20_000
_LINKS_ONLY: Final = re.compile(r"nav|menu|crumb|pag(?:er|ing|ination)|social|share")
_cache: dict[str, Verdict] = {}
_cache_of_all: dict[str, Verdict] = {}


def verdict_of(element: Any, tag: str) -> tuple[Verdict, str]:
    """The verdict on one element, and its class and id."""
    verdict = _BY_TAG.get(tag, Verdict.NONE)
    names = ""
    for name, value in element.items():
        if name == "class" or name == "id":
            names = f"{names} {value}"
        elif name == "hidden" or (name == "aria-hidden" and value == "true"):
            return Verdict.HIDDEN, ""
        elif name == "style":
            if _HIDING_STYLE.search(value):
                return Verdict.HIDDEN, ""
        elif name == "role":
            if (by_role := _BY_ROLE.get(value)) is not None:
                return by_role, value
        elif name == "itemprop" and "articlebody" in value.lower():
            return Verdict.BODY, value
    if not names or verdict is Verdict.BOILERPLATE or tag == "blockquote":
        return verdict, names
    key = f"{tag} {names}"
    found = _cache_of_all.get(key)
    if found is None:
        if len(_cache_of_all) >= MAX_CACHED:
            _cache_of_all.clear()
        found = _cache_of_all[key] = _by_all_names(verdict, tag, names)
    return found, names


def _by_all_names(verdict: Verdict, tag: str, names: str) -> Verdict:
    named = min(map(_by_name, names.split()), key=_PRIORITY.__getitem__, default=Verdict.NONE)
    if named is Verdict.BOILERPLATE and tag in ("ul", "ol") and _LINKS_ONLY.search(names.lower()):
        return Verdict.HIDDEN
    if verdict is Verdict.CONTENT and named is Verdict.DOUBTFUL:
        return verdict
    return named or verdict


def _by_name(name: str) -> Verdict:
    verdict = _cache.get(name)
    if verdict is None:
        verdict = Verdict.NONE
        lower = name.lower()
        if not _UNSAID.search(lower) and not _SENTENCE_LIKE(lower):
            verdict = next((meaning for pattern, meaning in _MEANINGS if pattern.search(lower)), Verdict.NONE)
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[name] = verdict
    return verdict


_MEANINGS: Final = (
    (_BODY, Verdict.BODY),
    (_BOILERPLATE, Verdict.BOILERPLATE),
    (_LEAD, Verdict.LEAD),
    (_CONTENT, Verdict.CONTENT),
    (_DOUBTFUL, Verdict.DOUBTFUL),
)
_PRIORITY: Final = {verdict: place for place, (_, verdict) in enumerate(_MEANINGS)} | {Verdict.NONE: len(_MEANINGS)}
