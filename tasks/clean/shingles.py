"""Word n-grams of many documents at once, as 64-bit hashes: numpy over one buffer of characters.

A word is a run of letters, digits, marks and underscores in lower case; in scripts without blanks every character is
a word. The hash of a word is a polynomial over random values of its characters modulo 2^64, taken from prefix sums;
the hash of an n-gram is one over its words. Equal n-grams have equal hashes in every process and on every machine.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from tasks.clean.word_classes import LETTER, NUM_CODE_POINTS, SEPARATOR, ascii_classes, character_classes

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CHARACTER_BASE = 0xD6E8FEB86659FD93  # odd, so that it has an inverse modulo 2^64
_WORD_BASE = 0xA0761D6478BD642F
# Tables for buffers up to this many characters are kept; those for a larger single document are made and dropped.
KEPT_TABLE_CHARACTERS = 1 << 20


def mix(values: Hashes) -> Hashes:
    """splitmix64's finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


def _powers(base: int, length: int) -> Hashes:
    with np.errstate(over="ignore"):
        powers = np.full(length, base & (2**64 - 1), np.uint64)
        powers[0] = 1
        return np.multiply.accumulate(powers)


def _power_tables(length: int) -> tuple[Hashes, Hashes]:
    return _kept_tables() if length <= KEPT_TABLE_CHARACTERS else _new_tables(length)


@cache
def _kept_tables() -> tuple[Hashes, Hashes]:
    return _new_tables(KEPT_TABLE_CHARACTERS)


def _new_tables(length: int) -> tuple[Hashes, Hashes]:
    return _powers(_CHARACTER_BASE, length), _powers(pow(_CHARACTER_BASE, -1, 2**64), length)


@cache
def _ascii_values() -> Hashes:
    return mix(np.arange(128, dtype=np.uint64))


def shingle_hashes(texts: Sequence[str], words_per_shingle: int) -> tuple[Hashes, Offsets]:
    """N-gram hashes of each text in order, repeats included: one uint64 array, and int64 [len(texts) + 1] offsets.

    A text with fewer words than an n-gram has is one n-gram of all its words; a text without a word has none.
    """
    lowered = [text.lower() if text.isascii() else unicodedata.normalize("NFC", text).lower() for text in texts]
    plain = [index for index, text in enumerate(lowered) if text.isascii()]
    other = [index for index, text in enumerate(lowered) if not text.isascii()]
    parts: list[Hashes] = [np.zeros(0, np.uint64)] * len(texts)
    if plain:
        codes = np.frombuffer("\n".join(lowered[index] for index in plain).encode(), np.uint8)
        classes, values = ascii_classes()[codes], _ascii_values()[codes]
        _fill(parts, plain, lowered, classes, values, words_per_shingle)
    if other:
        joined = "\n".join(lowered[index] for index in other).encode("utf-32-le", "surrogatepass")
        wide = np.minimum(np.frombuffer(joined, np.uint32), NUM_CODE_POINTS)
        _fill(parts, other, lowered, character_classes()[wide], mix(wide.astype(np.uint64)), words_per_shingle)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate([np.zeros(0, np.uint64), *parts]), offsets


def distinct(hashes: Hashes) -> Hashes:
    """The set of hashes, sorted."""
    return np.unique(hashes)


def jaccard(first: Hashes, second: Hashes) -> float:
    """Size of the intersection over size of the union of two sorted sets; 0 when one is empty."""
    if len(first) > len(second):
        first, second = second, first
    if not len(first):
        return 0.0
    places = np.searchsorted(second, first)
    places[places == len(second)] = 0
    common = int(np.count_nonzero(second[places] == first))
    return common / (len(first) + len(second) - common)


def _fill(
    parts: list[Hashes],
    indices: list[int],
    texts: list[str],
    classes: npt.NDArray[np.uint8],
    values: Hashes,
    words_per_shingle: int,
) -> None:
    """Cut the joined characters of some texts into n-grams, and put those of each text in its place."""
    starts_of_texts = np.zeros(len(indices) + 1, np.int64)
    np.cumsum([len(texts[index]) + 1 for index in indices], out=starts_of_texts[1:])
    words, first_characters = _word_hashes(classes, values)
    bounds = np.searchsorted(first_characters, starts_of_texts)
    grams = _roll(words, words_per_shingle)
    for index, first, last in zip(indices, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        num_words = last - first
        if num_words >= words_per_shingle:
            parts[index] = grams[first : last - words_per_shingle + 1]
        elif num_words:
            parts[index] = _roll(words[first:last], num_words)


def _word_hashes(classes: npt.NDArray[np.uint8], values: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Hash and first character's position of every word."""
    if not len(classes):
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    letter = classes == LETTER
    in_word = classes != SEPARATOR
    joined = letter[1:] & letter[:-1]  # character i + 1 goes on with the word of character i
    begins, ends = in_word.copy(), in_word.copy()
    begins[1:] &= ~joined
    ends[:-1] &= ~joined
    first, last = np.flatnonzero(begins), np.flatnonzero(ends)
    powers, inverse = _power_tables(len(classes) + 1)
    with np.errstate(over="ignore"):
        sums = np.cumsum(values * powers[: len(values)])
        before = sums[first] - values[first] * powers[first]
        return mix((sums[last] - before) * inverse[first]), first


def _roll(words: Hashes, size: int) -> Hashes:
    """The hash of every run of `size` words."""
    count = len(words) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    with np.errstate(over="ignore"):
        total = np.full(count, size, np.uint64)
        for offset in range(size):
            total = total * np.uint64(_WORD_BASE) + words[offset : offset + count]
    return mix(total)
