"""What every extractor promises: HTML text in, the main text and what is known about it out; no network, no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tasks.scrape.extractors.names import MODULES


@dataclass(frozen=True, slots=True)
class Extracted:
    """The main text of a page. Empty strings where nothing is known."""

    text: str
    title: str = ""
    date: str = ""
    language: str = ""


Extractor = Callable[[str, str], Extracted]
"""`extractor(html, url)`. May raise anything: the stage turns it into a reason."""


def load_extractor(name: str) -> Extractor:
    """The extractor of that name; only its own package is imported."""
    module = import_module(f"tasks.scrape.extractors.{MODULES[name]}")
    extractor: Extractor = module.EXTRACTORS[name]
    return extractor
