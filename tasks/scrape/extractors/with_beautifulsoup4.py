"""beautifulsoup4: the paragraphs, cells and headings of a page, those with at least a few words."""

from __future__ import annotations

from bs4 import BeautifulSoup

from tasks.scrape.extractors.contract import Extracted, Extractor

DROPPED_TAGS = ("script", "style", "nav", "footer", "header", "aside", "form", "noscript")
KEPT_TAGS = ("p", "td", "li", "pre", "blockquote")
MIN_PARAGRAPH_WORDS = 4


def _extract(html: str, url: str) -> Extracted:
    del url
    soup = BeautifulSoup(html, "lxml")
    title = soup.title.get_text() if soup.title else ""
    for tag in soup(list(DROPPED_TAGS)):
        tag.decompose()
    for tag in soup("br"):
        tag.replace_with("\n")
    parts = []
    for tag in soup(list(KEPT_TAGS)):
        text = tag.get_text().strip()
        if tag.find(list(KEPT_TAGS)) is None and (len(text.split()) >= MIN_PARAGRAPH_WORDS or tag.name == "td"):
            parts.append(text)
    root = soup.find("html")
    language = str(root.get("lang") or "") if root is not None else ""
    return Extracted("\n".join(parts), title.strip(), "", language)


EXTRACTORS: dict[str, Extractor] = {"beautifulsoup4": _extract}
