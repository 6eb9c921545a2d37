"""The order in which a corpus is trained on: Megatron-LM's three indices, bit for bit, in closed form.

The stream of a run is the documents in shuffled order, over as many epochs as needed, back to back. Sample k holds
tokens k*S .. (k+1)*S of the stream, S + 1 of them: neighbours share one token. The samples are then shuffled.
Algorithm: megatron/core/datasets/gpt_dataset.py (core_v0.12), whose compiled loop over documents is a running sum
and a binary search here.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.errors import CorpusError
from trainer.data.index_format import chunks

SEPARATE_LAST_EPOCH_BELOW = 0.80
"""A last epoch of which less than this part is asked for is shuffled apart from those before it."""
MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class EpochPlan:
    """How often the documents are gone through, and whether the last time is shuffled apart."""

    num_epochs: int
    num_samples: int
    """Samples in all epochs, which may be more than were asked for."""
    num_samples_before_last: int
    """Samples that end in the epochs before the last; only used when the last is apart."""
    last_is_separate: bool


@dataclass(frozen=True)
class SampleIndices:
    """The order of a run."""

    document_index: NDArray[Any]
    """Sequence ids in stream order, [epochs * documents], int32 (int64 beyond 2^31 sequences)."""
    sample_index: NDArray[Any]
    """Row k: (position in document_index, offset there) where sample k begins, [samples + 1, 2], int32 or int64."""
    shuffle_index: NDArray[Any]
    """Which sample comes i-th, [samples], uint32 or int64."""

    def __len__(self) -> int:
        return len(self.shuffle_index)


def plan_epochs(tokens_per_epoch: int, seq_length: int, num_samples: int | None) -> EpochPlan:
    """The least number of epochs that gives `num_samples` samples of `seq_length` + 1 tokens; one epoch for None.

    Raises CorpusError when samples are asked of an empty stream.
    """
    if num_samples is None:
        return EpochPlan(1, max(0, (tokens_per_epoch - 1) // seq_length), 0, False)
    if num_samples < 1:
        raise CorpusError(f"num_samples = {num_samples}: ask for at least one sample, or for none with None")
    if tokens_per_epoch == 0:
        raise CorpusError(f"{num_samples} samples are asked of a split without tokens")
    num_epochs = max(1, -(-(num_samples * seq_length + 1) // tokens_per_epoch))
    before_last = ((num_epochs - 1) * tokens_per_epoch - 1) // seq_length
    per_epoch = (tokens_per_epoch - 1) // seq_length
    separate = num_epochs > 1 and num_samples - before_last < int(SEPARATE_LAST_EPOCH_BELOW * per_epoch)
    return EpochPlan(num_epochs, (num_epochs * tokens_per_epoch - 1) // seq_length, before_last, separate)


def build_sample_index(
    sizes: NDArray[Any], document_index: NDArray[Any], seq_length: int, num_samples: int
) -> NDArray[Any]:
    """Where each sample begins: row k is the place of token k * seq_length of the stream, [num_samples + 1, 2].

    `sizes`: tokens of the sequences that `document_index` names. The document of token p is the first whose end, in
    the running sum of sizes, lies beyond p. Works through the documents in pieces: memory does not grow with them.
    int32, or int64 when a document number or a length does not fit.
    """
    largest = max(len(document_index), int(sizes.max()) if len(sizes) else 0)
    rows = np.zeros((num_samples + 1, 2), dtype=np.int64 if largest > MAX_INT32 else np.int32)
    begin = 0
    for start, stop in chunks(len(document_index)):
        lengths = sizes[document_index[start:stop]]
        ends = begin + np.cumsum(lengths, dtype=np.int64)
        end = int(ends[-1])
        first, last = -(-begin // seq_length), min(-(-end // seq_length), num_samples + 1)
        if first < last:
            places = np.arange(first, last, dtype=np.int64) * seq_length
            found = np.searchsorted(ends, places, side="right")
            rows[first:last, 0] = start + found
            rows[first:last, 1] = places - (ends[found] - lengths[found])
        begin = end
    rows[0] = 0  # even where the first documents are empty
    return rows


def build_sample_indices(
    sizes: NDArray[Any],
    first: int,
    stop: int,
    *,
    seq_length: int,
    num_samples: int | None,
    seed: int,
    shuffle: bool = True,
) -> SampleIndices:
    """The order of a run over the sequences [first, stop).

    `sizes` [n]: tokens of every sequence of the corpus. `num_samples` None means one epoch. `seed` starts NumPy's
    legacy Mersenne generator, which shuffles documents, then samples. `shuffle` False keeps both in file order.
    """
    num_documents = stop - first
    tokens_per_epoch = int(sizes[first:stop].sum(dtype=np.int64))
    plan = plan_epochs(tokens_per_epoch, seq_length, num_samples)
    rng = np.random.RandomState(seed)
    id_dtype = np.int32 if stop <= MAX_INT32 else np.int64
    document_index = np.tile(np.arange(first, stop, dtype=id_dtype), plan.num_epochs)
    sample_dtype = np.int64 if plan.num_samples >= np.iinfo(np.uint32).max - 1 else np.uint32
    shuffle_index = np.arange(plan.num_samples, dtype=sample_dtype)
    if shuffle:
        borders = [0, len(document_index)]
        if plan.last_is_separate:
            borders.insert(1, len(document_index) - num_documents)
        _shuffle_parts(rng, document_index, borders)
    sample_index = build_sample_index(sizes, document_index, seq_length, plan.num_samples)
    if shuffle:
        borders = [0, plan.num_samples]
        if plan.last_is_separate:
            borders.insert(1, plan.num_samples_before_last)
        _shuffle_parts(rng, shuffle_index, borders)
    return SampleIndices(document_index, sample_index, shuffle_index)


def _shuffle_parts(rng: np.random.RandomState, values: NDArray[Any], borders: list[int]) -> None:
    for start, stop in itertools.pairwise(borders):
        rng.shuffle(values[start:stop])
