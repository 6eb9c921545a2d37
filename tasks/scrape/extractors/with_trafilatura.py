"""trafilatura: fast (no fallbacks), full, and precision. Its filter of repeated text keeps state and stays off."""

from __future__ import annotations

from functools import partial
from typing import Any

import trafilatura
from lxml import html as lxml_html

from tasks.scrape.extractors.contract import Extracted, Extractor


def _extract(html: str, url: str, **options: Any) -> Extracted:
    tree = lxml_html.fromstring(
        html.encode("utf-8", "replace"), parser=lxml_html.HTMLParser(encoding="utf-8", huge_tree=True)
    )
    found = trafilatura.bare_extraction(
        tree, url=url or None, include_comments=False, deduplicate=False, with_metadata=False, **options
    )
    title = tree.findtext(".//title") or ""
    language = tree.get("lang") or ""
    if found is None:
        return Extracted("", title.strip(), "", language)
    text = found.text if not isinstance(found, dict) else found.get("text")
    return Extracted(text or "", title.strip(), "", language)


EXTRACTORS: dict[str, Extractor] = {
    "trafilatura": partial(_extract, fast=True),
    "trafilatura_full": partial(_extract, fast=False),
    "trafilatura_precision": partial(_extract, fast=False, favor_precision=True),
}
