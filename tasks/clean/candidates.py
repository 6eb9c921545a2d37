"""Which documents must be compared: equal digests and equal band keys, found by sorting one row of traits at a time.

Memory: a few 8-byte numbers for every document at a time, and more only for documents that share a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.shingles import Hashes
from tasks.clean.traits import BANDS_ROW, NUM_GRAMS_ROW

Numbers = npt.NDArray[np.int64]
NONE = -1


class TraitFiles:
    """The traits files of a corpus; documents are numbered through all of them in order."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises OSError when a file is missing."""
        self._files = [np.load(path, mmap_mode="r") for path in paths]
        self.lengths = [int(file.shape[1]) for file in self._files]
        self.num_documents = sum(self.lengths)
        self.num_rows = self._files[0].shape[0] if self._files else 0

    def row(self, number: int) -> Hashes:
        """One trait of every document."""
        return np.concatenate([np.zeros(0, np.uint64), *(file[number] for file in self._files)])


def first_of_equals(high: Hashes, low: Hashes, counts: npt.NDArray[np.bool_]) -> Numbers:
    """For each document the number of the first with the same 128-bit digest, -1 for that first one itself.

    Documents outside `counts` equal no other.
    """
    first = np.full(len(high), NONE, np.int64)
    chosen = np.flatnonzero(counts)
    # Sorted by digest, and by number within equal digests.
    order = chosen[np.lexsort((chosen, low[chosen], high[chosen]))]
    if not len(order):
        return first
    begins = np.ones(len(order), bool)
    begins[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    leaders = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    first[order[~begins]] = leaders[~begins]
    return first


def shared_bands(traits: TraitFiles, alive: npt.NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Documents that share a band key with another one: document numbers and group numbers, sorted by document.

    Only documents that are `alive` and have n-grams take part. A document stands once for each group it is in.
    """
    chosen = np.flatnonzero(alive & (traits.row(NUM_GRAMS_ROW) > 0))
    documents, groups, num_groups = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for band in range(BANDS_ROW, traits.num_rows):
        keys = traits.row(band)[chosen]
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        begins = np.ones(len(ordered), bool)
        begins[1:] = ordered[1:] != ordered[:-1]
        number = np.cumsum(begins) - 1
        several = np.bincount(number)[number] > 1 if len(number) else np.zeros(0, bool)
        documents.append(chosen[order[several]])
        groups.append(number[several] + num_groups)
        num_groups += int(number[-1]) + 1 if len(number) else 0
    all_documents, all_groups = np.concatenate(documents), np.concatenate(groups)
    by_document = np.lexsort((all_groups, all_documents))
    return all_documents[by_document], all_groups[by_document]
