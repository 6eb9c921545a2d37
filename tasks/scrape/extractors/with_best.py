"""best: our own reading of the page, and trafilatura where that finds too little.

Nearly all pages are read by one walk over the tree (page_blocks, article_body). A page that gives next to no text
that way goes through trafilatura too, first without and then with its fallbacks, and the longest text counts.
"""

from __future__ import annotations

from lxml import etree

from tasks.scrape.extractors.article_body import article_text, measure
from tasks.scrape.extractors.contract import Extracted, Extractor
from tasks.scrape.extractors.page_blocks import page_blocks, parse
from tasks.scrape.extractors.with_trafilatura import EXTRACTORS as TRAFILATURA

ENOUGH_CHARACTERS = 200
"""A text of so many characters is taken as it is."""
CAREFUL = ("trafilatura", "trafilatura_full")


def _extract(html: str, url: str) -> Extracted:
    branch, text, most = "blocks", "", ENOUGH_CHARACTERS
    try:
        page = page_blocks(parse(html))
        text = article_text(page)
        most = sum(map(len, page.texts))
    except (etree.LxmlError, RecursionError):
        pass
    for name in CAREFUL:
        if measure(text) >= ENOUGH_CHARACTERS or len(text) * 2 > most:
            break
        other = TRAFILATURA[name](html, url).text
        if measure(other) > measure(text):
            text, branch = other, name
    return Extracted(text, metrics={"branch": branch})


EXTRACTORS: dict[str, Extractor] = {"best": _extract}
