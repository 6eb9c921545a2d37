"""resiliparse: main content by rules on the parsed tree; the fastest of all."""

from __future__ import annotations

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from tasks.scrape.extractors.contract import Extracted, Extractor


def _extract(html: str, url: str) -> Extracted:
    del url
    tree = HTMLTree.parse(html)
    text = extract_plain_text(tree, main_content=True, alt_texts=False, preserve_formatting=True)
    language = tree.document.query_selector("html") if tree.document else None
    return Extracted(text, tree.title or "", "", (language.getattr("lang") or "") if language else "")


EXTRACTORS: dict[str, Extractor] = {"resiliparse": _extract}
