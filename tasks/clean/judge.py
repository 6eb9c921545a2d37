"""The cleaning of one document: repair, then the cheap rules before the dear ones, one reason at most."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tasks.clean.config import CleanConfig
from tasks.clean.language import Language, detect_language
from tasks.clean.languages import is_wanted
from tasks.clean.normalize import repair_text
from tasks.clean.token_count import has_tokens
from tasks.records import Document

# A text is mixed when its second language has at least this share (0 to 1).
MIXED_SHARE = 0.2


class CleanReason(StrEnum):
    """Why a document is not kept. What is wrong with the row itself is tasks.records.BadRow."""

    EMPTY = "empty"
    TOO_FEW_TOKENS = "too_few_tokens"
    UNKNOWN_LANGUAGE = "unknown_language"
    UNSURE_LANGUAGE = "unsure_language"
    OTHER_LANGUAGE = "other_language"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What cleaning found about a document."""

    reason: CleanReason | None
    """Why it is dropped; None when it is kept."""
    repaired: bool
    """Whether repair changed the text."""
    language: str = ""
    """The detected language, empty when none was or none was looked for."""
    is_mixed: bool = False
    """Whether a second language has at least MIXED_SHARE of the text."""


def judge(document: Document, config: CleanConfig) -> Judgement:
    """Repair the text in place and judge it. The language goes to `extra`, as `language` and `language_score`."""
    text = repair_text(document.text, config)
    repaired = text != document.text
    document.text = text
    if not text.strip():
        return Judgement(CleanReason.EMPTY, repaired)
    if not has_tokens(text, config.min_tokens):
        return Judgement(CleanReason.TOO_FEW_TOKENS, repaired)
    if config.language_detector == "none":
        return Judgement(None, repaired)
    found = detect_language(text, config.language_detector)
    document.extra["language"] = found.code
    document.extra["language_score"] = round(found.score, 4)
    return Judgement(_language_reason(found, config), repaired, found.code, found.second_score >= MIXED_SHARE)


def _language_reason(found: Language, config: CleanConfig) -> CleanReason | None:
    if not config.languages:
        return None
    if not found.code:
        return None if config.keep_unknown_language else CleanReason.UNKNOWN_LANGUAGE
    if not is_wanted(found.code, config.languages):
        return CleanReason.OTHER_LANGUAGE
    return CleanReason.UNSURE_LANGUAGE if found.score < config.min_language_probability else None
