"""What is known about the heads of URLs (scheme, host and port), looked up for all lines of a block at once.

Lists hold few hosts and many paths: a head is judged once, then found again by array operations that compare its
bytes with those of a table. The table answers exactly; what it does not hold is asked of a dictionary behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.scrape.filter_digest import WORD_BYTES, Places, Words, digests_of, masks_of

MAX_REMEMBERED_HEADS = 500_000
"""About 300 bytes each."""
NUM_WORDS = 5
"""A head of more than 40 bytes is looked up in the dictionary."""
TABLE_BITS = 18
KEPT, NOT_PLAIN = -1, -2
"""What stands where a dropped head has the number of its reason."""
LENGTH_BITS = 6
_LENGTH = (1 << LENGTH_BITS) - 1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(29)
_SLOT = np.uint64(64 - TABLE_BITS)


class HeadVerdicts(NamedTuple):
    """What rules say about heads; a list each."""

    codes: list[int]
    """KEPT, NOT_PLAIN (its lines must be judged one by one) or the number of a reason."""
    canonical: list[str]
    """The heads in canonical form; what keys begin with."""
    sites: list[str]
    """The sites that are counted."""


class HeadTable:
    """Verdicts about heads, by number: a head keeps its number until the table is emptied."""

    def __init__(self, judge: Callable[[list[bytes]], HeadVerdicts]) -> None:
        self._judge = judge
        self.forget()

    def forget(self) -> None:
        """Empty the table. Numbers that were given out mean nothing any more."""
        self.numbers: dict[bytes, int] = {}
        self._rows = np.zeros((1 << TABLE_BITS, NUM_WORDS), dtype="<u8")
        self._row_numbers = np.full(1 << TABLE_BITS, _LENGTH, np.int64)
        """Number and length; at first a length that none of the lines has."""
        self.sites: list[str] = []
        self._room = 1 << 12
        self.codes = np.zeros(self._room, np.int8)
        self.high, self.low, self.exact = (np.zeros(self._room, np.uint64) for _ in range(3))
        """Digests of the canonical heads, and of the heads as they are."""
        self.counts = np.zeros(self._room, np.int64)

    @property
    def is_full(self) -> bool:
        """True when the heads should be forgotten before the next block."""
        return len(self.numbers) >= MAX_REMEMBERED_HEADS

    def find(self, buffer: bytes, words: Words, starts: Places, lengths: Places) -> Places:
        """Numbers of the heads [lines] at `starts`, of `lengths` bytes; heads that are new are judged."""
        shape = (NUM_WORDS, len(starts))
        found: npt.NDArray[np.uint64] = np.empty(shape, "<u8")
        mixed = lengths.astype(np.uint64)
        for index, row in enumerate(found):
            row[:] = words[starts + WORD_BYTES * index]
            row &= masks_of(lengths - WORD_BYTES * index)
            mixed ^= row
            mixed *= _FACTOR
            mixed ^= mixed >> _MIX
        slots = (mixed >> _SLOT).astype(np.int64)
        rows = self._rows.take(slots, axis=0)
        numbers = self._row_numbers.take(slots)
        # with its length: a head that ends in zero bytes is another one
        same = (numbers & _LENGTH) == lengths
        for index in range(NUM_WORDS):
            same &= rows[:, index] == found[index]
        numbers >>= LENGTH_BITS
        numbers[~same] = -1
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            self._find_missing(buffer, starts, lengths, numbers, missing)
            short = missing[lengths[missing] <= NUM_WORDS * WORD_BYTES]
            self._rows[slots[short]] = found[:, short].T
            self._row_numbers[slots[short]] = numbers[short] << LENGTH_BITS | lengths[short]
        return numbers

    def _find_missing(self, buffer: bytes, starts: Places, lengths: Places, numbers: Places, missing: Places) -> None:
        known = self.numbers
        firsts = starts[missing].tolist()
        heads = [buffer[first:last] for first, last in zip(firsts, (starts + lengths)[missing].tolist(), strict=True)]
        new = [head for head in dict.fromkeys(heads) if head not in known]
        if new:
            self._learn(new)
        numbers[missing] = [known[head] for head in heads]

    def _learn(self, heads: list[bytes]) -> None:
        first = len(self.numbers)
        last = first + len(heads)
        while last > self._room:
            self._room *= 2
        for name in ("codes", "high", "low", "exact", "counts"):
            old = getattr(self, name)
            if len(old) < self._room:
                wider = np.zeros(self._room, old.dtype)
                wider[: len(old)] = old
                setattr(self, name, wider)
        verdicts = self._judge(heads)
        self.codes[first:last] = verdicts.codes
        self.sites += verdicts.sites
        self.high[first:last], self.low[first:last] = digests_of([head.encode() for head in verdicts.canonical])
        self.exact[first:last], _ = digests_of(heads)
        self.numbers.update(zip(heads, range(first, last), strict=True))
