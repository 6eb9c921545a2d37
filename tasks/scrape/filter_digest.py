"""Digests of many byte strings at once: two chains of 64 bits over words of eight bytes, for all strings together.

A step of a chain is a bijection of its state for a given word, and of the word for a given state, so two strings of
one length that differ in one word never collide in that step; both chains together collide as 128 random bits would.
They are no cryptography: who wants a page left out can leave it out of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]

WORD_BYTES = 8
FEW = 32
"""As many strings and fewer are carried on one by one."""
PADDING = bytes(8 * WORD_BYTES)
"""What must follow the last string of a buffer: words are read whole, and a few beyond a short string."""
LOWER_CASE = np.uint64(0x2020202020202020)
"""Bits that turn a word's letters to lower case, and change no digit."""
# Digits of pi: numbers without a plan
_HIGH_START, _LOW_START = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
_HIGH, _LOW = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_FULL = (1 << 64) - 1
_SHIFT = np.uint64(32)
_MASKS = np.array([(1 << 8 * width) - 1 for width in range(WORD_BYTES + 1)], dtype="<u8")


def words_of_buffer(buffer: bytes) -> Words:
    """The eight bytes from every place of `buffer` [bytes - 7], as little-endian words; no copy is made."""
    return np.ndarray((len(buffer) - WORD_BYTES + 1,), "<u8", buffer=buffer, strides=(1,))


def masks_of(lengths: Places) -> Words:
    """Masks that leave the first `lengths` bytes of a word; lengths below 0 and above 8 count as these."""
    return _MASKS.take(lengths, mode="clip")


def _step(state: Words, word: Words, factor: np.uint64) -> None:
    state ^= word
    state *= factor
    state ^= state >> _SHIFT


def digest(words: Words, starts: Places, lengths: Places) -> tuple[Words, Words]:
    """Both chains [strings] over the strings at `starts`, `lengths` bytes each.

    `words` is `words_of_buffer` of a buffer that ends in PADDING.
    """
    high = lengths.astype(np.uint64)
    low = high ^ _LOW_START
    high ^= _HIGH_START
    places, rest = starts, lengths
    active: Places | None = None
    while True:
        more = np.flatnonzero(rest > 0)
        if len(more) <= FEW:
            owners = more if active is None else active[more]
            for owner, place, size in zip(owners.tolist(), places[more].tolist(), rest[more].tolist(), strict=True):
                high[owner], low[owner] = _finish(words, place, size, int(high[owner]), int(low[owner]))
            return high, low
        if len(more) < len(rest):
            places, rest = places[more], rest[more]
            active = more if active is None else active[more]
        word = words[places]
        if int(rest.min()) < WORD_BYTES:
            word &= masks_of(rest)
        if active is None:
            _step(high, word, _HIGH)
            _step(low, word, _LOW)
        else:
            part = high[active]
            _step(part, word, _HIGH)
            high[active] = part
            part = low[active]
            _step(part, word, _LOW)
            low[active] = part
        places, rest = places + WORD_BYTES, rest - WORD_BYTES


def _finish(words: Words, place: int, size: int, high: int, low: int) -> tuple[int, int]:
    """Both chains over one string: for a few long ones this is sooner done than by arrays."""
    values = words[place : place + size : WORD_BYTES].tolist()
    if size % WORD_BYTES:
        values[-1] &= (1 << 8 * (size % WORD_BYTES)) - 1
    high_factor, low_factor = int(_HIGH), int(_LOW)
    for value in values:
        high = (high ^ value) * high_factor & _FULL
        high ^= high >> 32
        low = (low ^ value) * low_factor & _FULL
        low ^= low >> 32
    return high, low


def digests_of(texts: Sequence[bytes]) -> tuple[Words, Words]:
    """`digest` of separate strings."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return digest(words_of_buffer(b"".join(texts) + PADDING), np.cumsum(lengths) - lengths, lengths)


def joined(first: Words, second: Words) -> Words:
    """One digest for each pair of strings, from a digest of either."""
    both = first * _LOW
    _step(both, second, _HIGH)
    return both
