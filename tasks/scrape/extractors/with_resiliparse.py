"""resiliparse: main content by rules on the parsed tree; ten times as fast as the others."""

from __future__ import annotations

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from tasks.scrape.extractors.contract import Extracted, Extractor


def _extract(html: str, url: str) -> Extracted:
    del url
    tree = HTMLTree.parse(html)
    return Extracted(extract_plain_text(tree, main_content=True, alt_texts=False, preserve_formatting=True))


EXTRACTORS: dict[str, Extractor] = {"resiliparse": _extract}
