"""The cleaning of one document: repair, then the cheap rules before the dear ones, one reason at most."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tasks.clean.config import CleanConfig
from tasks.clean.language import detect_language
from tasks.clean.languages import is_wanted
from tasks.clean.normalize import repair_text
from tasks.clean.token_count import has_tokens
from tasks.records import Document


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


def judge(document: Document, config: CleanConfig) -> Judgement:
    """Repair the text in place and judge it. A detected language goes to `extra["language"]`."""
    text = repair_text(document.text, config)
    repaired = text != document.text
    document.text = text
    if not text.strip():
        return Judgement(CleanReason.EMPTY, repaired)
    if not has_tokens(text, config.min_tokens):
        return Judgement(CleanReason.TOO_FEW_TOKENS, repaired)
    if config.language_detector == "none":
        return Judgement(None, repaired)
    language, probability = detect_language(text, config.language_detector)
    document.extra["language"] = language
    reason = None
    if config.languages:
        if not language:
            reason = CleanReason.UNKNOWN_LANGUAGE
        elif not is_wanted(language, config.languages):
            reason = CleanReason.OTHER_LANGUAGE
        elif probability < config.min_language_probability:
            reason = CleanReason.UNSURE_LANGUAGE
    return Judgement(reason, repaired, language)
