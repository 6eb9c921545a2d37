"""The numbers of a text that the rules of quality look at. Words are what stands between white space.

In scripts without blanks (Chinese, Japanese, Thai) each character is a word; what is only true of alphabets, such as
the length of a word, is NaN when most of a text is in such a script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cached_property

from tasks.clean.boilerplate import boilerplate_line, javascript_notice
from tasks.clean.quality_rules import Rule
from tasks.clean.repetition import line_repetition, repeated_pieces, word_repetition
from tasks.clean.word_classes import UNSPACED

# Gopher, arXiv 2112.11446, appendix A1.1.
STOP_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
SHORT_LINE_CHARACTERS = 30
DIGITS = 6
# What ends a sentence, closing quotes and brackets after it aside; also in the scripts of Asia and Ethiopia.
ENDS = frozenset(".!?…。!?।॥؟۔။።")
_AFTER_END = "\"'”’»」』)]*_"
_SENTENCE = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)|[。!?।؟۔။።]+")
_UNSPACED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]")
_BULLETS = ("•", "-", "*", "‣", "▪", "●", "◦", "·")


class TextNumbers:
    """Numbers of one text, each computed when it is first asked for."""

    def __init__(self, text: str, language: str = "") -> None:
        """`language` is the detected code; empty when it is not known, and then English is assumed."""
        self.text = text
        self.language = language

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether most of the text is in a script without blanks between words."""
        return not self.text.isascii() and 2 * len(_UNSPACED.findall(self.text)) > len(self.text)

    @cached_property
    def words(self) -> list[str]:
        """What stands between white space, or single characters of an unspaced script."""
        return list("".join(self.text.split())) if self.is_unspaced else self.text.split()

    @cached_property
    def lines(self) -> list[str]:
        """Lines with something in them, without white space at their ends."""
        return [line for line in map(str.strip, self.text.split("\n")) if line]

    @cached_property
    def line_repetition(self) -> dict[str, float]:
        return line_repetition(self.text)

    @cached_property
    def word_repetition(self) -> dict[str, float]:
        return word_repetition(self.words, len(self.text))

    def of_words(self, number: float) -> float:
        """`number` a word; NaN for a text without words."""
        return number / len(self.words) if self.words else math.nan

    def of_lines(self, holds: Callable[[str], bool]) -> float:
        """The fraction of lines for which `holds`; NaN for a text without lines."""
        return sum(map(holds, self.lines)) / len(self.lines) if self.lines else math.nan


def _javascript_characters(of: TextNumbers) -> float:
    return len(of.text) if "javascript" in of.text.lower() else math.nan


def _javascript_notice_words(of: TextNumbers) -> float:
    return len(of.words) if javascript_notice(of.text) else math.nan


def _mean_word_length(of: TextNumbers) -> float:
    if of.is_unspaced or not of.words:
        return math.nan
    # Words of punctuation alone do not count.
    words = [word for word in of.words if word.isalnum() or any(map(str.isalnum, word))]
    return sum(map(len, words)) / len(words) if words else math.nan


def _stop_words(of: TextNumbers) -> float:
    if of.is_unspaced or of.language not in ("", "en"):
        return math.nan
    return len(STOP_WORDS.intersection(of.words))


def _alphabetic(of: TextNumbers) -> float:
    number = sum(1 for word in of.words if word.isalpha() or any(map(str.isalpha, word)))
    return of.of_words(number)


def _has_end(line: str) -> bool:
    return line[-1] in ENDS or (line[-1] in _AFTER_END and line.rstrip(_AFTER_END)[-1:] in ENDS)


def _repeated_of_lines(of: TextNumbers) -> float:
    characters = sum(map(len, of.lines))
    return repeated_pieces(of.lines)[1] / characters if characters else math.nan


MEASURES: dict[str, Callable[[TextNumbers], float]] = {
    "characters": lambda of: len(of.text),
    "javascript_characters": _javascript_characters,
    "javascript_notice_words": _javascript_notice_words,
    "boilerplate_line_fraction": lambda of: of.of_lines(boilerplate_line),
    "sentences": lambda of: len(_SENTENCE.findall(of.text)),
    "curly_brackets": lambda of: of.text.count("{"),
    "lorem_ipsum": lambda of: of.text.lower().count("lorem ipsum"),
    "words": lambda of: len(of.words),
    "mean_word_length": _mean_word_length,
    "hashes_per_word": lambda of: of.of_words(of.text.count("#")),
    "ellipses_per_word": lambda of: of.of_words(of.text.count("...") + of.text.count("…")),
    "bullet_line_fraction": lambda of: of.of_lines(lambda line: line.startswith(_BULLETS)),
    "ellipsis_line_fraction": lambda of: of.of_lines(lambda line: line.endswith(("...", "…"))),
    "alphabetic_word_fraction": _alphabetic,
    "stop_words": _stop_words,
    "ended_line_fraction": lambda of: of.of_lines(_has_end),
    "short_line_fraction": lambda of: of.of_lines(lambda line: len(line) <= SHORT_LINE_CHARACTERS),
    "repeated_line_characters_of_lines": _repeated_of_lines,
    "newlines_per_word": lambda of: of.of_words(of.text.count("\n")),
}


def _from_group(group: str, name: str) -> Callable[[TextNumbers], float]:
    return lambda of: float(getattr(of, group)[name])


for _group, _names in (("line_repetition", line_repetition("")), ("word_repetition", word_repetition((), 0))):
    MEASURES |= {name: _from_group(_group, name) for name in _names}


def measure_text(text: str, names: Iterable[str], language: str = "") -> dict[str, float]:
    """The named numbers of a text, rounded to DIGITS as they are kept. Raises KeyError for an unknown name."""
    of = TextNumbers(text, language)
    return {name: round(float(MEASURES[name](of)), DIGITS) for name in names}


def measures_of(rules: Iterable[Rule]) -> tuple[str, ...]:
    """The measures that some rules need, each once, in order."""
    return tuple(dict.fromkeys(rule.measure for rule in rules))
