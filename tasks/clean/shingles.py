"""Word n-grams of many documents at once, as 64-bit hashes: numpy over one buffer of UTF-8 bytes.

A word is a run of letters, digits, marks and underscores, letter case aside; in scripts without blanks every character
is a word. A few passes over the bytes find words and turn capitals into small letters; then words are taken eight bytes
at a time, so that the work after them grows with words and not with characters. Equal n-grams have equal hashes in
every process and on every machine. Words of up to eight bytes have no collisions at all: their hash is a bijection.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tasks.clean.word_classes import ALONE, NUM_CODE_POINTS, SEPARATOR, character_classes, folded

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_WORD_BASE = np.uint64(0xA0761D6478BD642F)
_LOAD = 8
# Blanks before and after the buffer: no word touches its ends, and the last load stays inside.
_MARGIN = b" " * (2 * _LOAD)
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(_LOAD + 1)], np.uint64)
# Characters of one pass: its arrays should stay in a core's cache.
BATCH_CHARACTERS = 1 << 18


def mix(values: Hashes) -> Hashes:
    """splitmix64's finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


def encode(text: str) -> bytes:
    """UTF-8 in NFC, as `byte_hashes` wants it; half surrogate pairs pass."""
    if text.isascii():
        return text.encode()
    return unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")


def shingle_hashes(texts: Sequence[str], words_per_shingle: int) -> tuple[Hashes, Offsets]:
    """N-gram hashes of each text in order, repeats included: one uint64 array, and int64 [len(texts) + 1] offsets.

    A text with fewer words than an n-gram has is one n-gram of all its words; a text without a word has none.
    """
    return byte_hashes([encode(text) for text in texts], words_per_shingle)


@dataclass(frozen=True)
class Words:
    """The words of several texts one after another."""

    hashes: Hashes
    begins: Places
    """The byte at which each word begins, in the buffer of all texts."""
    ends: Places
    """The byte after each word."""
    bounds: Places
    """[texts + 1]: the first word of each text, and the number of all."""
    starts: Places
    """[texts]: where each text begins in the buffer."""


def words_of(encoded: Sequence[bytes]) -> Words:
    """Cut texts that `encode` has made bytes into words."""
    joined = b"".join((_MARGIN, b"\n".join(encoded), _MARGIN))
    codes, in_word = _fold_ascii(np.frombuffer(joined, np.uint8))
    if joined.isascii():
        first, after = _words(in_word)
    else:
        alone, following = _fold_beyond_ascii(codes, in_word)
        first, after = _words(in_word) if not len(alone) else _words_with_alone(in_word, alone, following)
    starts = np.full(len(encoded) + 1, len(_MARGIN), np.int64)
    starts[1:] += np.cumsum([len(one) + 1 for one in encoded], dtype=np.int64)
    return Words(_word_hashes(codes, first, after - first), first, after, np.searchsorted(first, starts), starts[:-1])


def byte_hashes(encoded: Sequence[bytes], words_per_shingle: int) -> tuple[Hashes, Offsets]:
    """The same as `shingle_hashes` for texts that `encode` has made bytes."""
    words = words_of(encoded)
    grams = roll(words.hashes, words_per_shingle)
    parts: list[Hashes] = [np.zeros(0, np.uint64)]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    bounds = words.bounds.tolist()
    for place, (begin, end) in enumerate(pairwise(bounds), start=1):
        count = end - begin
        if count >= words_per_shingle:
            parts.append(grams[begin : end - words_per_shingle + 1])
            offsets[place] = count - words_per_shingle + 1
        elif count:
            parts.append(roll(words.hashes[begin:end], count))
            offsets[place] = 1
    return np.concatenate(parts), np.cumsum(offsets)


def distinct(hashes: Hashes) -> Hashes:
    """The set of hashes, sorted."""
    ordered = np.sort(hashes)
    if not len(ordered):
        return ordered
    new = np.empty(len(ordered), bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def jaccard(first: Hashes, second: Hashes) -> float:
    """Size of the intersection over size of the union of two sorted sets; 0 when one is empty."""
    if not len(first) or not len(second):
        return 0.0
    both = np.concatenate((first, second))
    both.sort(kind="stable")  # two runs that are merged
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    return common / (len(both) - common)


def _fold_ascii(raw: Bytes) -> tuple[Bytes, Mask]:
    """The bytes with capitals as small letters, and which are part of words: ASCII as in \\w, and all beyond."""
    place = (raw | np.uint8(0x20)) - np.uint8(0x61)
    letter = place < 26
    codes: Bytes = raw | (letter.view(np.uint8) << np.uint8(5))
    np.subtract(raw, 0x30, out=place)
    letter |= place < 10
    letter |= raw == 0x5F
    letter |= raw >= 0x80
    return codes, letter


def _words(in_word: Mask) -> tuple[Places, Places]:
    """Where words begin and the place after each; the buffer begins and ends between words."""
    edges = np.flatnonzero(in_word[1:] != in_word[:-1]) + 1
    return edges[0::2], edges[1::2]


def _words_with_alone(in_word: Mask, alone: Places, following: Places) -> tuple[Places, Places]:
    """The same where characters that are words of their own begin at `alone` and end before `following`."""
    begins = np.zeros(len(in_word), bool)
    begins[1:] = in_word[1:] & ~in_word[:-1]
    begins[alone] = True
    begins[following] |= in_word[following]
    return np.flatnonzero(begins), np.flatnonzero(in_word[:-1] & (begins[1:] | ~in_word[1:])) + 1


def _fold_beyond_ascii(codes: Bytes, in_word: Mask) -> tuple[Places, Places]:
    """Take out separators and fold capitals outside ASCII, in place. Returns begin and end of characters alone."""
    places = np.flatnonzero(codes >= 0xC0)
    lead = codes[places].astype(np.int32)
    size = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    points = lead & (0xFF >> (size + 1))
    for step in range(1, 4):
        more = size > step
        points[more] = (points[more] << 6) | (codes[places[more] + step] & 0x3F)
    points = np.minimum(points, NUM_CODE_POINTS)
    classes = character_classes()[points]
    for length in (2, 3, 4):
        between = places[(classes == SEPARATOR) & (size == length)]
        for step in range(length):
            in_word[between + step] = False
        small = folded()[points]
        changed = (small != points) & (size == length)
        _write(codes, places[changed], length, small[changed])
    alone = classes == ALONE
    return places[alone], places[alone] + size[alone]


def _write(codes: Bytes, places: Places, length: int, points: npt.NDArray[np.int32]) -> None:
    """Write the code points of characters over their bytes, of which each has `length`."""
    for step in range(length - 1, 0, -1):
        codes[places + step] = 0x80 | (points & 0x3F)
        points = points >> 6
    codes[places] = (0xF00 >> length) & 0xFF | points


def _word_hashes(codes: Bytes, first: Places, length: Places) -> Hashes:
    """Hash of every word: its bytes eight at a time, each load multiplied and xor-shifted into what came before."""
    loads = np.ndarray((len(codes) - _LOAD + 1,), "<u8", codes, 0, (1,))
    with np.errstate(over="ignore"):
        hashes: Hashes = loads[first].astype(np.uint64, copy=False)
        hashes &= _MASKS[np.minimum(length, _LOAD)]
        hashes *= _FIRST
        hashes ^= hashes >> np.uint64(29)
        long, at = np.flatnonzero(length > _LOAD), _LOAD
        while len(long):
            more = loads[first[long] + at] & _MASKS[np.minimum(length[long] - at, _LOAD)]
            more = (more + hashes[long]) * _SECOND
            hashes[long] = (more ^ (more >> np.uint64(32))) * _FIRST
            at += _LOAD
            long = long[length[long] > at]
        hashes ^= hashes >> np.uint64(32)
    return hashes


def roll(words: Hashes, size: int) -> Hashes:
    """The hash of every run of `size` words: a polynomial over their hashes modulo 2^64, then mixed."""
    count = len(words) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    with np.errstate(over="ignore"):
        total = words[:count] + np.uint64(size)
        for offset in range(1, size):
            total *= _WORD_BASE
            total += words[offset : offset + count]
        total ^= total >> np.uint64(32)
        total *= _SECOND
        total ^= total >> np.uint64(29)
    return total
