"""Settings of cleaning, duplicates and the shuffle."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from tasks.configuration import Resources, StageConfig
from tasks.errors import nearest

DetectorName = Literal["langdetect", "none"]


def _known_detector(value: object) -> object:
    names = get_args(DetectorName)
    if isinstance(value, str) and value not in names:
        raise ValueError(f"there is no such language detector. {nearest(value, names)}")
    return value


class CleanConfig(StageConfig):
    """How text is repaired, and which documents are kept."""

    min_tokens: int = Field(default=128, ge=0)
    """Documents with fewer GPT-2 tokens are dropped (the end-of-document token does not count); 0 keeps all."""
    language_detector: Annotated[DetectorName, BeforeValidator(_known_detector)] = "langdetect"
    """What decides the language; none keeps every document."""
    languages: tuple[str, ...] = ("en",)
    """Language codes (ISO 639-1, as langdetect prints them) that are kept; empty keeps all and only counts."""
    min_language_probability: float = Field(default=0.5, ge=0, le=1)
    """A language counts only when the detector is at least so sure."""
    unescape_html: bool = True
    """Turn entities such as &amp; into characters, in the whole document alike."""
    uncurl_quotes: bool = True
    """Turn typographic quotes into straight ones."""
    normal_form: Literal["NFC", "NFKC"] = "NFC"
    """Unicode normal form of the text."""


class DedupConfig(StageConfig):
    """Which documents count as the same; the first in input order survives."""

    exact: bool = True
    """Drop documents whose text is equal but for white space at the ends, runs of white space and composed accents."""
    near: bool = True
    """Drop documents that share most of their word n-grams with one that is kept."""
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Near duplicates have at least this Jaccard similarity of their word n-grams."""
    shingle_words: int = Field(default=5, ge=1)
    """Words in one n-gram; a shorter text is one n-gram."""
    num_hashes: int = Field(default=128, ge=8, le=1024)
    """MinHash values of a document; more find more of the pairs near the threshold."""
    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Seed of the hash functions."""


class ShuffleResources(Resources):
    """How fast the shuffle runs, and how much memory it may take."""

    memory_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes of documents held in memory at the same time. The order does not depend on it."""


class ShuffleConfig(StageConfig):
    """The global order of documents."""

    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Same seed and same documents, same order."""
    documents_per_shard: int = Field(default=20_000, ge=1)
    """Documents in one shard of the result."""
    resources: ShuffleResources = ShuffleResources()
    """Workers and memory; they never change the order."""
