"""What is left of a document when the stretches that a benchmark holds are cut out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from tasks.clean.config import DecontaminateConfig

SENTENCE_ENDS = ".!?"


class DecontaminateReason(StrEnum):
    """Why a document is dropped."""

    OVERLAP = "benchmark_overlap"
    NOTHING_LEFT = "only_benchmark_text"
    TOO_MANY_PIECES = "too_many_pieces"


def pieces_of(text: str, matches: Sequence[tuple[int, int]], config: DecontaminateConfig) -> list[str]:
    """The pieces between cuts, in order; the whole text when nothing matches.

    `matches` are first and last character (exclusive), by first character and longest first. Around each match
    `cut_characters` go on both sides, and on to the last sentence end before and the first one after. A match that
    begins inside a cut is gone with it.
    """
    pieces, begin = [], 0
    for first, last in matches:
        if first < begin:
            continue
        end = _last_sentence_end(text, begin, first - config.cut_characters)
        if end - begin > config.min_piece_characters:
            pieces.append(text[begin:end])
        begin = _next_sentence(text, last + config.cut_characters)
        if len(text) - begin <= config.min_piece_characters:
            return pieces
    return [*pieces, text[begin:]]


def _last_sentence_end(text: str, begin: int, before: int) -> int:
    """The place after the last sentence end in text[begin + 1 : before + 1], `begin` when there is none."""
    if before <= begin:
        return begin
    last = max(text.rfind(mark, begin + 1, before + 1) for mark in SENTENCE_ENDS)
    return last + 1 if last > begin else begin


def _next_sentence(text: str, after: int) -> int:
    """The place after the first sentence end at `after` or later; the end of the text when there is none."""
    found = [place for mark in SENTENCE_ENDS if (place := text.find(mark, after)) >= 0]
    return min(found) + 1 if found else len(text)
