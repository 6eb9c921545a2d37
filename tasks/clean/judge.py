"""The cleaning of one document: repair, then the cheap rules before the dear ones, one reason at most."""

from __future__ import annotations

from enum import StrEnum

from tasks.clean.config import CleanConfig
from tasks.clean.language import detect_language
from tasks.clean.normalize import repair_text
from tasks.gpt2_vocabulary import gpt2_tokenizer
from tasks.records import Document, Verdict


class CleanReason(StrEnum):
    """Why a document is not kept. What is wrong with the row itself is tasks.records.BadRow."""

    EMPTY = "empty"
    TOO_FEW_TOKENS = "too_few_tokens"
    UNKNOWN_LANGUAGE = "unknown_language"
    OTHER_LANGUAGE = "other_language"


# The longest token of GPT-2's vocabulary is 128 bytes long, and no token is empty.
LONGEST_TOKEN_BYTES = 128
KEPT = Verdict(True)


def has_tokens(text: str, minimum: int) -> bool:
    """Whether the text has at least `minimum` GPT-2 tokens. Exact; counted only where the length does not decide."""
    if minimum <= 0:
        return True
    num_bytes = len(text.encode())
    if num_bytes < minimum:
        return False
    if num_bytes >= minimum * LONGEST_TOKEN_BYTES:
        return True
    return len(gpt2_tokenizer().encode(text, add_special_tokens=False)) >= minimum


def judge(document: Document, config: CleanConfig) -> tuple[Verdict, bool]:
    """Repair the text in place and judge it. Returns the verdict and whether repair changed anything.

    A kept document gets its language in `extra["language"]`.
    """
    repaired = repair_text(document.text, config)
    changed = repaired != document.text
    document.text = repaired
    if not repaired.strip():
        return Verdict(False, CleanReason.EMPTY), changed
    if not has_tokens(repaired, config.min_tokens):
        return Verdict(False, CleanReason.TOO_FEW_TOKENS), changed
    if config.language_detector == "none":
        return KEPT, changed
    language, probability = detect_language(repaired)
    if config.languages:
        if not language:
            return Verdict(False, CleanReason.UNKNOWN_LANGUAGE), changed
        if language not in config.languages or probability < config.min_language_probability:
            return Verdict(False, CleanReason.OTHER_LANGUAGE), changed
    document.extra["language"] = language
    return KEPT, changed
