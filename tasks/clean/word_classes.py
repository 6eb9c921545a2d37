"""Which characters make words, for n-grams over any script."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

SEPARATOR, LETTER, ALONE = 0, 1, 2
# Planes 0 to 3 have all letters; what lies beyond (tags, variation selectors, private use) separates words.
NUM_CODE_POINTS = 0x40000
_AFTER_LAST_CAPITAL = 0x1F000
# Scripts written without blanks between words: each character is a word of its own.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x9FFF),  # CJK ideographs
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """uint8 [NUM_CODE_POINTS + 1]: letters, numbers, marks, connectors make words; the last stands for all beyond."""
    letters = ("L", "N", "M", "Pc")
    classes = np.zeros(NUM_CODE_POINTS + 1, np.uint8)
    classes[:NUM_CODE_POINTS] = [
        LETTER if unicodedata.category(chr(code)).startswith(letters) else SEPARATOR for code in range(NUM_CODE_POINTS)
    ]
    for first, last in UNSPACED:
        part = classes[first : last + 1]
        part[part == LETTER] = ALONE
    return classes


@cache
def folded() -> npt.NDArray[np.int32]:
    """int32 [NUM_CODE_POINTS + 1]: each code point's small letter, where that is one character of as many bytes.

    The few others (such as the capital I with a dot) stay as they are: they only are no equals of their small letters.
    """
    table = np.arange(NUM_CODE_POINTS + 1, dtype=np.int32)
    for code in range(0x80, _AFTER_LAST_CAPITAL):
        small = chr(code).lower()
        if len(small) == 1 and ord(small) != code and _num_bytes(ord(small)) == _num_bytes(code):
            table[code] = ord(small)
    return table


def _num_bytes(code: int) -> int:
    return 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
