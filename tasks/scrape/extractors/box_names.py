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
        nav|navi|navbar|navigation|menus?|submenu|topbar|subnav|breadcrumbs?|crumbs?|pager|pagination|paging|page-?numbers
      | skip-?links?|toc|table-of-contents
      | side-?bar\w*|rail|footer|foot|colophon|masthead|(?:site|page|global)-?header
      | share|sharing|sharedaddy|shares|share-?\w*|social|socials|social-?\w*|addthis\w*|addtoany\w*|follow|follow-?us
      | related|related-?\w*|relacionad[ao]s?|recommend\w*|recirc\w*|read-?(?:more|next|also)|more-?(?:from|on|news|stories|articles)
      | see-?also|also-?read|you-?may\w*|outbrain|taboola|trc|next-?(?:article|post)|prev-?(?:article|post)|previous-?post
      | most-?(?:read|popular)|popular|trending
      | newsletters?|newsletter-?\w*|subscri(?:be|ption|ptions)|sign-?up|paywall|login|log-?in|promo|promos|promotion|promo-?\w*
      | ads?|advert|adverts|advertis\w*|adsense|sponsor\w*|dfp\w*|werbung|anzeige|publicidad|publicite
      | comments?|commentlist|comments-?\w*|comment-?(?:list|area|section|form|body|content|respond)|respond|disqus\w*|replies|kommentare?
      | comentarios|commentaires
      | cookie\w*|consent|gdpr\w*|popup|pop-?up|modal|overlay|lightbox|tooltip
      | author-?(?:box|bio|info|card|description|about|block|profile|details)|about-?(?:the-?)?author|vcard|byline
      | tag-?(?:list|cloud|links)|tagcloud|(?:post|entry|article)-?(?:tags|meta|footer|info|navigation|nav|author|utility|tools)
      | cat-?links|search-?(?:form|box|results?|bar)|searchbox|searchform|printfriendly|copyright
      | wp-caption-text|contact-?form|signup|cta|call-?to-?action
    )(?=$|[_-]|\d)
    """,
    re.VERBOSE,
)
_DOUBTFUL: Final = re.compile(
    r"""
    (?:^|[_-])(?:
        banner|widgets?|widget-?area|rating|ratings|votes?|toolbox|toolbar|tools|legal|disclaimer|credits?|captions?|image-?caption
      | photo-?caption|gallery|slideshow|carousel|slider|feedback|donate|donation|register|dialog|tags|bio|meta|metadata
      | post-?date|posted-?(?:on|by|in)|dateline|timestamp|categories|print|top|bottom|teasers?|by-?line
    )(?=$|[_-]|\d)
    """,
    re.VERBOSE,
)
_BODY: Final = re.compile(
    r"""
    (?:^|[_-])(?:
        (?:article|entry|post|story|news|blog|blogpost|content)[_-]*(?:body|content|text|copy)(?:[_-]?(?:inner|text|wrapper))?
      | articlebody|articletext|articlecontent|storybody|storycontent|postbody|postcontent|entrycontent|body-?copy|body-?text
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
_BOILERPLATE_TAGS: Final = frozenset(("nav", "footer", "aside", "menu"))
_DOUBTFUL_TAGS: Final = frozenset(("form", "fieldset"))
_BOILERPLATE_ROLES: Final = frozenset(
    ("navigation", "contentinfo", "search", "menu", "menubar", "toolbar", "dialog",
     "alertdialog", "alert", "tablist", "tooltip")
)  # fmt: skip
_DOUBTFUL_ROLES: Final = frozenset(("complementary", "banner", "form"))
_HIDING_STYLE: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
MAX_CACHED: Final = 20_000
_cache: dict[str, Verdict] = {}


def verdict_of(element: Any, tag: str) -> tuple[Verdict, str]:
    """The verdict on one element, and its class and id."""
    attributes = element.attrib
    verdict = _by_tag(tag)
    if not attributes:
        return verdict, ""
    get = attributes.get
    if "hidden" in attributes or get("aria-hidden") == "true":
        return Verdict.HIDDEN, ""
    if (style := get("style")) and _HIDING_STYLE.search(style):
        return Verdict.HIDDEN, ""
    if (role := get("role")) is not None:
        if role in _BOILERPLATE_ROLES:
            return Verdict.BOILERPLATE, role
        if role in _DOUBTFUL_ROLES:
            return Verdict.DOUBTFUL, role
        if role == "main":
            return Verdict.CONTENT, role
    if (kind := get("itemprop")) is not None and "articlebody" in kind.lower():
        return Verdict.BODY, kind
    names = f"{get('class', '')} {get('id', '')}"
    if names == " " or verdict is Verdict.BOILERPLATE or tag == "blockquote":
        return verdict, names
    named = _by_names(names)
    if verdict is Verdict.CONTENT and named is Verdict.DOUBTFUL:
        return verdict, names
    return named or verdict, names


def _by_tag(tag: str) -> Verdict:
    if tag in _BOILERPLATE_TAGS:
        return Verdict.BOILERPLATE
    if tag in _DOUBTFUL_TAGS:
        return Verdict.DOUBTFUL
    return Verdict.CONTENT if tag in ("article", "main") else Verdict.NONE


def _by_names(names: str) -> Verdict:
    verdict = _cache.get(names)
    if verdict is None:
        tokens = [token for token in names.lower().split() if not _UNSAID.search(token)]
        verdict = Verdict.NONE
        for pattern, meaning in _MEANINGS:
            if any(pattern.search(token) for token in tokens):
                verdict = meaning
                break
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[names] = verdict
    return verdict


_MEANINGS: Final = (
    (_BODY, Verdict.BODY),
    (_BOILERPLATE, Verdict.BOILERPLATE),
    (_LEAD, Verdict.LEAD),
    (_CONTENT, Verdict.CONTENT),
    (_DOUBTFUL, Verdict.DOUBTFUL),
)
