"""Settings of cleaning, duplicates and the shuffle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from tasks.clean.boilerplate import LineReason
from tasks.clean.languages import DETECTOR_CODES, base_code, canonical_code, is_installed
from tasks.clean.masking import MaskedKind
from tasks.clean.quality_rules import PRESETS, RULE_NAMES, PresetName, Rule, rules_of
from tasks.configuration import Config, Resources, StageConfig
from tasks.errors import nearest

DetectorName = Literal["langdetect", "pycld2", "none"]


def _known_detector(value: object) -> object:
    names = get_args(DetectorName)
    if isinstance(value, str) and value not in names:
        raise ValueError(f"there is no such language detector. {nearest(value, names)}")
    return value


def _known_presets(value: object) -> object:
    for name in value if isinstance(value, (list, tuple)) else ():
        if name not in PRESETS:
            raise ValueError(f"there is no such preset. {nearest(str(name), PRESETS)}")
    return value


class QualityConfig(Config):
    """Which rules of quality hold. tasks/clean/quality_rules.py has all of them in one table, each with its source."""

    presets: Annotated[tuple[PresetName, ...], BeforeValidator(_known_presets)] = ()
    """Sets of rules: megatron, boilerplate, c4, gopher, fineweb; several add up. c4 and boilerplate also leave out
    lines. FineWeb's own recipe is gopher, c4 and fineweb with line_without_end in off."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """Other thresholds by name of the rule, such as gopher_few_words = 20; a rule of no chosen preset is added."""
    off: tuple[str, ...] = ()
    """Names of rules that do not hold, of whole texts or of lines."""

    @model_validator(mode="after")
    def _names_are_known(self) -> QualityConfig:
        for name in self.thresholds:
            if name not in RULE_NAMES:
                raise ValueError(f"thresholds: there is no rule {name!r}. {nearest(name, RULE_NAMES)}")
        known = (*RULE_NAMES, *map(str, LineReason))
        for name in self.off:
            if name not in known:
                raise ValueError(f"off: there is no rule {name!r}. {nearest(name, known)}")
        return self

    def rules(self) -> tuple[Rule, ...]:
        """The rules that hold, in the order in which a text is judged."""
        return rules_of(self.presets, self.thresholds, self.off)


class JudgeConfig(StageConfig):
    """Other rules of quality for documents whose numbers were kept when they were cleaned."""

    quality: QualityConfig = QualityConfig()
    """The rules that hold now. Each needs a number that was taken then; lines that were left out stay left out."""


class CleanConfig(StageConfig):
    """How text is repaired, and which documents are kept."""

    min_tokens: int = Field(default=128, ge=0)
    """Documents with fewer GPT-2 tokens are dropped (the end-of-document token does not count); 0 keeps all."""
    language_detector: Annotated[DetectorName, BeforeValidator(_known_detector)] = "pycld2"
    """What decides the language: pycld2 (fast, 160 languages), langdetect (as in Megatron-LM's tools, 55 languages),
    or none, which keeps every document. tasks/clean/language.py has the figures behind the default."""
    languages: tuple[str, ...] = ("en",)
    """Language codes (ISO 639-1, such as en, ja, zh or zh-tw) that are kept; empty keeps all and only counts."""
    min_language_probability: float = Field(default=0.5, ge=0, le=1)
    """A language counts only with at least this score. pycld2: the share of the text that is in the language, so that
    0.5 keeps mixed text that is mostly in it; langdetect: how probable the language is."""
    keep_unknown_language: bool = False
    """Keep documents in which no language is found: too short for the detector, or digits and signs alone."""
    unescape_html: bool = True
    """Turn entities such as &amp; into characters, in the whole document alike."""
    uncurl_quotes: bool = True
    """Turn typographic quotes into straight ones."""
    normal_form: Literal["NFC", "NFKC"] = "NFC"
    """Unicode normal form of the text."""
    mask: tuple[MaskedKind, ...] = ()
    """What is replaced by a mark and counted: email, ip (public addresses alone), phone."""
    quality: QualityConfig = QualityConfig()
    """Rules of quality; their numbers are kept beside the documents, so that the stage judge can move thresholds."""
    keep_dropped: bool = False
    """Also keep the documents that a rule of quality drops, so that the stage judge can bring them back."""
    example_seed: int = 1234
    """Chooses the ten examples of each reason in report.json."""

    @model_validator(mode="after")
    def _languages_can_be_found(self) -> CleanConfig:
        if self.language_detector == "none":
            return self
        if not is_installed(self.language_detector):
            raise ValueError(
                f"language_detector = {self.language_detector!r}: the package {self.language_detector} is not "
                f"installed. Run: pip install {self.language_detector}, or use language_detector = 'langdetect'"
            )
        known = {*DETECTOR_CODES[self.language_detector], *map(base_code, DETECTOR_CODES[self.language_detector])}
        for code in self.languages:
            if canonical_code(code) not in known and base_code(code) not in known:
                raise ValueError(f"languages: {self.language_detector} does not know {code!r}. {nearest(code, known)}")
        return self


class DedupResources(Resources):
    """How fast copies are found, and how much memory that may take."""

    memory_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes of the tables that all workers together sort, beside 15 a document. Survivors do not depend on it."""


class DedupConfig(StageConfig):
    """Which documents count as the same; the first in input order survives."""

    urls: bool = False
    """Keep only the first document of each URL, whatever its text; documents without a URL are all kept."""
    exact: bool = True
    """Drop documents whose text is equal but for white space at the ends, runs of white space and composed accents."""
    near: bool = True
    """Drop documents that share most of their word n-grams with one that is kept."""
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Near duplicates have at least this Jaccard similarity of their sets of word n-grams."""
    shingle_words: int = Field(default=5, ge=1, le=64)
    """Words in one n-gram; a shorter text is one n-gram."""
    num_hashes: int = Field(default=72, ge=8, le=1024)
    """MinHash values of a document. Bands are as long as a pair at the threshold is found with probability .995."""
    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Seed of the hash functions."""
    repeats: Literal["keep", "lines", "paragraphs"] = "keep"
    """Cut out lines, or paragraphs between blank lines, that an earlier kept document or place has; keep cuts none."""
    min_repeat_words: int = Field(default=8, ge=1)
    """Lines and paragraphs with fewer words are never cut out."""
    resources: DedupResources = DedupResources()
    """Workers and memory; they never change what survives."""


class DecontaminateConfig(StageConfig):
    """What is taken out of documents because a benchmark holds it. The numbers are those of GPT-3 (Brown et al. 2020,
    appendix C) as Megatron-LM's filter_ngrams.py has them."""

    benchmarks: tuple[Path, ...] = ()
    """Files of tests to come: JSON lines, or plain text (.txt) with blank lines between texts; also .gz, .zst."""
    benchmark_fields: tuple[str, ...] = ()
    """Fields of JSON rows that are read; empty reads every string, those in lists and objects too."""
    mode: Literal["cut", "drop"] = "cut"
    """Cut the matching stretches out of a document, or drop the whole document."""
    ngram_words: int = Field(default=13, ge=2, le=64)
    """Words in a row that make a match."""
    min_ngram_words: int = Field(default=8, ge=1, le=64)
    """A benchmark text with fewer words than an n-gram matches as a whole, but not with fewer words than this."""
    common_documents: int = Field(default=10, ge=0)
    """N-grams that so many documents hold are common phrases and no match; 0 knows no common ones."""
    cut_characters: int = Field(default=200, ge=0)
    """Characters cut on each side of a match, and on to the next full stop, question or exclamation mark."""
    min_piece_characters: int = Field(default=200, ge=0)
    """What is left between two cuts stays when it has more characters than this."""
    most_pieces: int = Field(default=10, ge=1)
    """A document that falls into more pieces is dropped."""

    @model_validator(mode="after")
    def _shortest_is_shorter(self) -> DecontaminateConfig:
        if self.min_ngram_words > self.ngram_words:
            raise ValueError(
                f"min_ngram_words = {self.min_ngram_words} is more than ngram_words = {self.ngram_words}; lower it"
            )
        return self


class ShuffleResources(Resources):
    """How fast the shuffle runs, and how much memory it may take."""

    memory_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes of documents that all workers together hold in memory. The order does not depend on it."""


class ShuffleConfig(StageConfig):
    """The global order of documents."""

    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Same seed and same documents, same order."""
    documents_per_shard: int = Field(default=20_000, ge=1)
    """Documents in one shard of the result."""
    compression: Literal["zstd", "none"] = "zstd"
    """How shards are written: zstd, or plain JSON lines, which are several times as large and faster."""
    resources: ShuffleResources = ShuffleResources()
    """Workers and memory; they never change the order."""
