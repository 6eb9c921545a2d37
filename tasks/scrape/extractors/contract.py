"""What every extractor promises: HTML text in, the main text and what is known about it out; no network, no state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from tasks.scrape.extractors.names import MODULES


@dataclass(frozen=True, slots=True)
class Extracted:
    """The main text of a page: paragraphs on lines of their own. Empty strings where nothing is known."""

    text: str
    title: str = ""
    date: str = ""
    """When it was published, ISO 8601, as far as known."""
    language: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """How the text was found, as far as the extractor has something to tell."""


Extractor = Callable[[str, str], Extracted]
"""`extractor(html, url)`. May raise anything: the stage turns it into a reason.

`html` holds no control characters and no encoding declaration, and is nested no deeper than parsers can follow.
The same arguments give the same result, however often and in whatever order pages are extracted.
"""


def load_extractor(name: str) -> Extractor:
    """The extractor of that name; only its own package is imported."""
    module = import_module(f"tasks.scrape.extractors.{MODULES[name]}")
    extractor: Extractor = module.EXTRACTORS[name]
    return extractor
