"""The cleaning of one document: repair, then the cheap rules before the dear ones, one reason at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tasks.clean.boilerplate import without_lines
from tasks.clean.config import CleanConfig
from tasks.clean.language import Language, detect_language
from tasks.clean.languages import is_wanted
from tasks.clean.masking import mask
from tasks.clean.normalize import changes_of, repair_text
from tasks.clean.quality_measures import measure_text, measures_of
from tasks.clean.quality_rules import Rule
from tasks.clean.token_count import has_tokens
from tasks.records import Document

# A text is mixed when its second language has at least this share (0 to 1).
MIXED_SHARE = 0.2


class CleanReason(StrEnum):
    """Why a document is not kept, but for the rules of quality, whose reasons are their names (quality_rules.RULES).

    What is wrong with the row itself is tasks.records.BadRow.
    """

    EMPTY = "empty"
    TOO_FEW_TOKENS = "too_few_tokens"
    UNKNOWN_LANGUAGE = "unknown_language"
    UNSURE_LANGUAGE = "unsure_language"
    OTHER_LANGUAGE = "other_language"


@dataclass(slots=True)
class Judgement:
    """What cleaning found about a document."""

    reason: str = ""
    """Why it is dropped; empty when it is kept."""
    language: str = ""
    """The detected language, empty when none was or none was looked for."""
    changes: dict[str, int] = field(default_factory=dict)
    """What was changed or noticed: documents repaired, lines left out, addresses masked."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The numbers that the rules of quality look at, by measure; empty for a document that did not come so far."""
    failed: tuple[Rule, ...] = ()
    """All rules of quality that the text fails, in order; the first is the reason."""


class Judge:
    """Cleans documents by one configuration."""

    def __init__(self, config: CleanConfig) -> None:
        self.config = config
        self.rules = config.quality.rules()
        self.measures = measures_of(self.rules)
        self._edits_lines = bool({"c4", "boilerplate"} & set(config.quality.presets))

    def judge(self, document: Document) -> Judgement:
        """Repair the text in place and judge it. The language goes to `extra`, as `language` and `language_score`."""
        config, found = self.config, Judgement()
        text = repair_text(document.text, config)
        if text != document.text:
            found.changes["repaired"] = 1
            found.changes |= {f"repaired:{kind}": 1 for kind in changes_of(document.text, text, config)}
        if self._edits_lines:
            text, lines = without_lines(text, config.quality.presets, config.quality.off)
            found.changes |= lines
        if config.mask:
            text, masked = mask(text, config.mask)
            found.changes |= {f"masked:{kind}": number for kind, number in masked.items()}
        document.text = text
        found.reason = self._first_reason(document, found)
        if not found.reason and self.measures:
            found.numbers = numbers = measure_text(text, self.measures, found.language)
            found.failed = tuple(rule for rule in self.rules if not rule.passes(numbers[rule.measure]))
            if found.failed:
                found.reason = found.failed[0].name
        return found

    def _first_reason(self, document: Document, found: Judgement) -> str:
        text, config = document.text, self.config
        if not text.strip():
            return CleanReason.EMPTY
        if not has_tokens(text, config.min_tokens):
            return CleanReason.TOO_FEW_TOKENS
        if config.language_detector == "none":
            return ""
        language = detect_language(text, config.language_detector)
        document.extra["language"] = found.language = language.code
        document.extra["language_score"] = round(language.score, 4)
        if language.second_score >= MIXED_SHARE:
            found.changes["mixed_languages"] = 1
        return _language_reason(language, config)


def _language_reason(found: Language, config: CleanConfig) -> str:
    if not config.languages:
        return ""
    if not found.code:
        return "" if config.keep_unknown_language else CleanReason.UNKNOWN_LANGUAGE
    if not is_wanted(found.code, config.languages):
        return CleanReason.OTHER_LANGUAGE
    return CleanReason.UNSURE_LANGUAGE if found.score < config.min_language_probability else ""
