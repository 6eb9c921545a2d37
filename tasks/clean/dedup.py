"""Which documents survive: the first in input order, whatever the number of workers.

A document is dropped only for a survivor that is the same or similar enough: copies of copies do not swallow a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tasks.clean.candidates import NONE, Numbers, TraitFiles, first_of_equals
from tasks.clean.config import DedupConfig
from tasks.clean.shingles import Hashes, jaccard
from tasks.clean.traits import TEXT_ROW, URL_ROW

# Survivors of one band key that a document is compared with. More share one only where pages of a template are alike
# but not alike enough; without a limit their comparisons would grow with the square of their number.
MOST_PER_GROUP = 1000


class DedupReason(StrEnum):
    """Why a document is a copy."""

    URL = "url_duplicate"
    EXACT = "exact_duplicate"
    NEAR = "near_duplicate"


REASONS = ("", *DedupReason)
"""A decision's number stands for the reason at its place here."""


@dataclass(frozen=True)
class Decisions:
    """For every document of the corpus, by number."""

    reason: npt.NDArray[np.uint8]
    """Place in REASONS; 0 for a survivor."""
    survivor: Numbers
    """The document it is a copy of, -1 for a survivor."""

    def alive(self) -> npt.NDArray[np.bool_]:
        """Documents that no rule has dropped so far."""
        return np.equal(self.reason, 0)

    def drop(self, numbers: Numbers, survivors: Numbers, reason: DedupReason) -> None:
        """Mark documents as copies of survivors."""
        self.reason[numbers] = REASONS.index(reason)
        self.survivor[numbers] = survivors


def decide_equals(traits: TraitFiles, config: DedupConfig) -> Decisions:
    """Drop what has the URL, then what has the text, of an earlier document."""
    decisions = Decisions(np.zeros(traits.num_documents, np.uint8), np.full(traits.num_documents, NONE, np.int64))
    for wanted, row, reason in ((config.urls, URL_ROW, DedupReason.URL), (config.exact, TEXT_ROW, DedupReason.EXACT)):
        if not wanted:
            continue
        high, low = traits.row(row), traits.row(row + 1)
        counts = decisions.alive()
        if reason is DedupReason.URL:
            counts &= (high | low) != 0
        first = first_of_equals(high, low, counts)
        copies = np.flatnonzero(first != NONE)
        decisions.drop(copies, first[copies], reason)
    return decisions


def decide_near(
    decisions: Decisions,
    documents: Numbers,
    groups: Numbers,
    grams_of: Callable[[int], Hashes],
    threshold: float,
) -> dict[str, int]:
    """Drop every document that is similar enough to an earlier survivor of one of its groups.

    `documents` and `groups` are what `shared_bands` found; `grams_of` gives a document's set of n-grams. Copies of a
    dropped document become copies of its survivor. Returns counts of candidates, comparisons and full groups.
    """
    survivors_of: dict[int, list[int]] = {}
    counts = {"near_candidates": 0, "near_comparisons": 0, "near_groups_full": 0}
    moved: dict[int, int] = {}
    for number, own_groups in _by_document(documents, groups):
        counts["near_candidates"] += 1
        shared: dict[int, int] = {}
        for group in own_groups:
            for other in survivors_of.get(group, ()):
                shared[other] = shared.get(other, 0) + 1
        grams = grams_of(number)
        similar = NONE
        # Those that share most bands first: they are the likeliest. Which one it is decides nothing but the report.
        for other in sorted(shared, key=lambda one: (-shared[one], one)):
            counts["near_comparisons"] += 1
            others = grams_of(other)
            low, high = sorted((len(grams), len(others)))
            if low >= threshold * high and jaccard(grams, others) >= threshold:
                similar = other
                break
        if similar != NONE:
            moved[number] = similar
            continue
        for group in own_groups:
            members = survivors_of.setdefault(group, [])
            if len(members) < MOST_PER_GROUP:
                members.append(number)
                counts["near_groups_full"] += len(members) == MOST_PER_GROUP
    if moved:
        dropped = np.array(sorted(moved), np.int64)
        decisions.drop(dropped, np.array([moved[number] for number in dropped.tolist()], np.int64), DedupReason.NEAR)
        _follow(decisions)
    return counts


def _by_document(documents: Numbers, groups: Numbers) -> Iterator[tuple[int, list[int]]]:
    numbers, begins = np.unique(documents, return_index=True)
    ends = np.append(begins[1:], len(documents))[: len(begins)].tolist()
    for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends, strict=True):
        yield number, groups[begin:end].tolist()


def _follow(decisions: Decisions) -> None:
    # An exact copy of a near copy: its text is as similar to the survivor as the near copy's.
    copies = np.flatnonzero(decisions.survivor != NONE)
    next_one = decisions.survivor[decisions.survivor[copies]]
    decisions.survivor[copies[next_one != NONE]] = next_one[next_one != NONE]
