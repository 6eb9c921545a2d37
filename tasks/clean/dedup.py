"""Which documents survive: the first in input order, whatever the number of workers.

A document is dropped only for a survivor that is the same or similar enough: copies of copies do not swallow a chain.

Memory: 9 bytes for every line (`Decisions`) and 6 for masks while candidates are looked for, 32 for every line that is
compared (`GramFiles`), and what shares a band key in ranges of lines that fit the setting. 300 million lines of which
60 million are compared: 4.5 GB and 1.9 GB beside the setting. The n-grams themselves stay on disk (8 bytes each, about
4 kB for a document of 500 words that is compared) and are mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tasks.clean.candidates import LOW_HALF, NONE, NUMBER_BITS, Mask, Numbers, first_of_equals
from tasks.clean.shingles import Hashes, jaccard

# Survivors of one crowd that a document is compared with. More share a band key only where pages of a template are
# alike but not alike enough; without a limit their comparisons would grow with the square of their number.
MOST_PER_CROWD = 1000
# Bytes for an entry while a range is sorted: itself, its sorted copy, counts, places of both sets of n-grams, order.
BYTES_PER_ENTRY = 96
RANGE_BINS = 4096


class DedupReason(StrEnum):
    """Why a document is a copy."""

    URL = "url_duplicate"
    EXACT = "exact_duplicate"
    NEAR = "near_duplicate"
    REPEATS = "only_repeats"
    """Nothing but lines or paragraphs that earlier documents have."""


REASONS = ("", *DedupReason)
"""A decision's number stands for the reason at its place here."""


@dataclass(frozen=True)
class Decisions:
    """For every line of the corpus, by number."""

    reason: npt.NDArray[np.uint8]
    """Place in REASONS; 0 for a survivor."""
    survivor: Numbers
    """The line it is a copy of, -1 for a survivor."""

    @staticmethod
    def none(num_lines: int) -> Decisions:
        """Nothing dropped so far."""
        return Decisions(np.zeros(num_lines, np.uint8), np.full(num_lines, NONE, np.int64))

    def alive(self) -> npt.NDArray[np.bool_]:
        """Lines that no rule has dropped so far."""
        return np.equal(self.reason, 0)

    def drop(self, numbers: Numbers, survivors: Numbers, reason: DedupReason) -> None:
        """Mark documents as copies of survivors."""
        self.reason[numbers] = REASONS.index(reason)
        self.survivor[numbers] = survivors

    def follow(self) -> None:
        """A copy of a copy becomes one of that copy's survivor: its text is as similar to it."""
        copies = np.flatnonzero(self.survivor != NONE)
        while True:
            following = self.survivor[self.survivor[copies]]
            moved = following != NONE
            if not moved.any():
                return
            copies = copies[moved]
            self.survivor[copies] = following[moved]


def decide_same_words(
    decisions: Decisions, copies: Numbers, firsts: Numbers, digests: tuple[Numbers, Hashes] | None, with_words: Mask
) -> None:
    """Drop lines that have all n-grams of an earlier one: as exact copies where the text is equal, else as near ones.

    `copies` and `firsts` are what `equals_part` found; `digests` has lines and their text digests, None when exact
    copies are not looked for; `with_words` says of each of `copies` whether it may be a near copy.
    """
    if digests is not None:
        numbers, keys = digests
        first = first_of_equals(keys[0], keys[1])
        equal = np.flatnonzero(first != NONE)
        decisions.drop(numbers[equal], numbers[first[equal]], DedupReason.EXACT)
    rest = with_words & (decisions.reason[copies] == 0)
    decisions.drop(copies[rest], firsts[rest], DedupReason.NEAR)


@dataclass(frozen=True)
class NearLinks:
    """What shares a band key, one pair of arrays a part: sorted (line, earlier line), sorted (line, crowd)."""

    pairs: Sequence[Hashes]
    crowds: Sequence[Hashes]

    def lines(self, num_lines: int) -> Numbers:
        """All lines that must be compared, in order."""
        seen = np.zeros(num_lines, bool)
        for array in self.pairs:
            seen[(array >> NUMBER_BITS).astype(np.int64)] = True
            seen[(array & LOW_HALF).astype(np.int64)] = True
        for array in self.crowds:
            seen[(array >> NUMBER_BITS).astype(np.int64)] = True
        return np.flatnonzero(seen)

    def ranges(self, num_lines: int, memory_bytes: int) -> list[tuple[int, int]]:
        """Ranges of lines whose entries fit the memory, as far as RANGE_BINS bins of lines can be told apart."""
        width = max(1, -(-num_lines // RANGE_BINS))
        edges = np.arange(0, num_lines + width, width, dtype=np.uint64) << NUMBER_BITS
        counts = np.zeros(len(edges) - 1, np.int64)
        for array in (*self.pairs, *self.crowds):
            counts += np.diff(np.searchsorted(array, edges))
        cuts, held = [0], 0
        for place, count in enumerate(counts.tolist()):
            if held and (held + count) * BYTES_PER_ENTRY > memory_bytes:
                cuts.append(place * width)
                held = 0
            held += count
        return list(pairwise([*cuts, num_lines]))

    @cached_property
    def _first_crowds(self) -> list[np.uint64]:
        # Crowds are counted from 0 in each part.
        sizes = [int((array & LOW_HALF).max()) + 1 if len(array) else 0 for array in self.crowds]
        return [np.uint64(sum(sizes[:part])) for part in range(len(sizes))]

    def entries(self, first: int, last: int) -> tuple[Hashes, npt.NDArray[np.int64], Hashes]:
        """Of lines in [first, last): distinct pairs, how many bands each shares, and (line, crowd) of all parts."""
        low, high = np.uint64(first) << NUMBER_BITS, np.uint64(last) << NUMBER_BITS
        pairs, counts = np.unique(
            np.concatenate([np.zeros(0, np.uint64), *(_between(array, low, high) for array in self.pairs)]),
            return_counts=True,
        )
        crowds = [np.zeros(0, np.uint64)]
        for array, offset in zip(self.crowds, self._first_crowds, strict=True):
            crowds.append(_between(array, low, high) + offset)
        return pairs, counts, np.sort(np.concatenate(crowds))


def _between(array: Hashes, low: np.uint64, high: np.uint64) -> Hashes:
    begin, end = np.searchsorted(array, np.array([low, high]))
    return array[begin:end]


@dataclass(frozen=True)
class GramFiles:
    """The sets of n-grams of all lines that are compared: mapped arrays, and where each set lies."""

    numbers: Numbers
    """The lines, in order."""
    arrays: Sequence[Hashes]
    array_of: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def get(self, place: int) -> Hashes:
        """The set of the line at that place of `numbers`."""
        found: Hashes = self.arrays[self.array_of[place]][self.begins[place] : self.ends[place]]
        return found


def decide_near(
    decisions: Decisions, links: NearLinks, grams: GramFiles, threshold: float, memory_bytes: int
) -> dict[str, int]:
    """Drop every document that is similar enough to an earlier survivor that shares a band key with it.

    Returns counts of candidates, comparisons and full crowds.
    """
    counts = {"near_candidates": len(grams.numbers), "near_comparisons": 0, "near_crowds_full": 0}
    survivors_of: dict[int, list[int]] = {}
    near = REASONS.index(DedupReason.NEAR)
    sizes = grams.ends - grams.begins

    def similar_to(own: Hashes, places: list[int]) -> int:
        for place in places:
            if decisions.reason[grams.numbers[place]]:
                continue
            counts["near_comparisons"] += 1
            if jaccard(own, grams.get(place)) >= threshold:
                return int(grams.numbers[place])
        return NONE

    for first, last in links.ranges(len(decisions.reason), memory_bytes):
        for place, others, crowds in _by_line(links, grams.numbers, sizes, threshold, first, last):
            own = grams.get(place)
            similar = similar_to(own, others)
            if similar == NONE and crowds:
                shared: dict[int, int] = {}
                for crowd in crowds:
                    for other in survivors_of.get(crowd, ()):
                        shared[other] = shared.get(other, 0) + 1
                close = [one for one in shared if _can_be_alike(sizes[one], sizes[place], threshold)]
                similar = similar_to(own, sorted(close, key=lambda one: (-shared[one], one)))
            if similar != NONE:
                decisions.reason[grams.numbers[place]] = near
                decisions.survivor[grams.numbers[place]] = similar
                continue
            for crowd in crowds:
                members = survivors_of.setdefault(crowd, [])
                if len(members) < MOST_PER_CROWD:
                    members.append(place)
                    counts["near_crowds_full"] += len(members) == MOST_PER_CROWD
    return counts


def _can_be_alike(one: np.int64, other: np.int64, threshold: float) -> bool:
    return bool(min(one, other) >= threshold * max(one, other))


def _by_line(
    links: NearLinks, numbers: Numbers, sizes: npt.NDArray[np.int64], threshold: float, first: int, last: int
) -> Iterator[tuple[int, list[int], list[int]]]:
    """For each line of a range in order: its place, places of earlier lines to compare, and its crowds.

    Those that share most bands come first: they are the likeliest. Which one it is decides nothing but the report.
    """
    pairs, counts, crowds = links.entries(first, last)
    own = np.searchsorted(numbers, (pairs >> NUMBER_BITS).astype(np.int64))
    other = np.searchsorted(numbers, (pairs & LOW_HALF).astype(np.int64))
    low, high = np.minimum(sizes[own], sizes[other]), np.maximum(sizes[own], sizes[other])
    possible = low >= threshold * high
    own, other, counts = own[possible], other[possible], counts[possible]
    order = np.lexsort((other, -counts, own))
    own, other = own[order], other[order]
    crowd_of = np.searchsorted(numbers, (crowds >> NUMBER_BITS).astype(np.int64))
    crowd = crowds & LOW_HALF
    places = np.union1d(own, crowd_of)
    pair_at, crowd_at = _bounds(own, places), _bounds(crowd_of, places)
    for at, place in enumerate(places.tolist()):
        yield (
            place,
            other[pair_at[0][at] : pair_at[1][at]].tolist(),
            crowd[crowd_at[0][at] : crowd_at[1][at]].tolist(),
        )


def _bounds(array: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
    return np.searchsorted(array, values).tolist(), np.searchsorted(array, values, side="right").tolist()
