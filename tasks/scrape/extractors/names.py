"""Names of the extractors, known without loading any of them."""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "best": "with_best",
    "trafilatura": "with_trafilatura",
    "trafilatura_full": "with_trafilatura",
    "trafilatura_precision": "with_trafilatura",
    "newspaper3k": "with_newspaper3k",
    "beautifulsoup4": "with_beautifulsoup4",
    "resiliparse": "with_resiliparse",
}
"""Extractor name -> module of this package that holds it."""
EXTRACTOR_NAMES: Final = tuple(MODULES)
DEFAULT_EXTRACTOR: Final = "best"
