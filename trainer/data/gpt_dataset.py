"""Training samples of a corpus, in Megatron-LM's order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.errors import CorpusError
from trainer.data.index_cache import Arrays, cached_arrays, content_sha256
from trainer.data.indexed_dataset import IndexedDataset
from trainer.data.sample_indices import SampleIndices, build_sample_indices, plan_epochs
from trainer.data.splits import SPLIT_NAMES, SplitName, split_bounds

__all__ = ["GPTDataset", "SplitName", "read_sample", "sample_pieces"]

logger = logging.getLogger(__name__)


def sample_pieces(corpus: IndexedDataset, indices: SampleIndices, row: int) -> Iterator[tuple[int, int, int]]:
    """Where the tokens of the sample in `row` of the sample index lie: (sequence, offset, number of tokens) in order.

    Pieces without tokens are left out. Together they have one token more than the sequence length.
    """
    (first, first_offset), (last, last_offset) = (
        indices.sample_index[row].tolist(),
        indices.sample_index[row + 1].tolist(),
    )
    for position in range(first, last + 1):
        sequence = int(indices.document_index[position])
        start = first_offset if position == first else 0
        stop = last_offset + 1 if position == last else int(corpus.sequence_lengths[sequence])
        if stop > start:
            yield sequence, start, stop - start


def read_sample(corpus: IndexedDataset, indices: SampleIndices, row: int, seq_length: int) -> NDArray[np.int64]:
    """The tokens of the sample in `row` of the sample index, int64 [seq_length + 1]."""
    tokens = np.empty(seq_length + 1, dtype=np.int64)
    filled = 0
    for sequence, offset, length in sample_pieces(corpus, indices, row):
        tokens[filled : filled + length] = corpus.get(sequence, offset, length)
        filled += length
    return tokens


class GPTDataset:
    """Samples of `seq_length` + 1 tokens, cut from the documents of a split without regard to their borders.

    Neighbours in the stream share one token, so that every token but the very first is predicted once an epoch.
    `len` may be larger than the number of samples asked for, because epochs are whole; it is 0 for a split too small
    to hold one sample.
    """

    def __init__(
        self,
        corpus: IndexedDataset,
        *,
        split: SplitName,
        split_weights: str,
        seq_length: int,
        num_samples: int | None,
        seed: int,
        cache_dir: Path | None = None,
        shuffle: bool = True,
    ) -> None:
        """Build the order, or map it from the cache.

        `split_weights`: such as 969,30,1. `num_samples`: how many will be read, in as many epochs as that takes; None
        means one epoch. `seed`: of the order, 0 to 2^32 - 1. `cache_dir`: where orders are kept between runs. Raises
        CorpusError for a setting that makes no sense, for a corpus without tokens, and when training samples are
        asked of an empty training split; an empty validation or test split is a warning.
        """
        if split not in SPLIT_NAMES:
            raise CorpusError(f"split = {split!r}: known are {', '.join(SPLIT_NAMES)}")
        if seq_length < 1:
            raise CorpusError(f"seq_length = {seq_length}: a sample has at least 1 token and its successor")
        if not 0 <= seed < 2**32:
            raise CorpusError(f"seed = {seed}: a seed is between 0 and 2^32 - 1")
        if corpus.num_tokens == 0:
            raise CorpusError(f"{corpus.prefix}: the corpus holds no tokens; there is nothing to train on")
        self.corpus, self.split, self.seq_length = corpus, split, seq_length
        self.first, self.stop = split_bounds(split_weights, len(corpus))[split]
        """The sequences [first, stop) of the corpus belong to this split."""
        lengths = corpus.sequence_lengths[self.first : self.stop]
        self.tokens_per_epoch = int(lengths.sum(dtype=np.int64))
        if self.tokens_per_epoch == 0:
            message = f"{corpus.prefix}: split {split_weights} gives the part {split!r} no tokens"
            if split == "train" and num_samples is not None:
                raise CorpusError(f"{message}; there is nothing to train on")
            logger.warning("%s; it is skipped", message)
            num_samples = None
        self.plan = plan_epochs(self.tokens_per_epoch, seq_length, num_samples)

        def build() -> SampleIndices:
            return build_sample_indices(
                corpus.sequence_lengths,
                self.first,
                self.stop,
                seq_length=seq_length,
                num_samples=num_samples,
                seed=seed,
                shuffle=shuffle,
            )

        if self.plan.num_samples == 0 or cache_dir is None:
            self.indices = build()
            return
        # Indices are a function of these and of nothing else: whatever the .bin holds, they fit it.
        meaning = {
            "lengths_sha256": content_sha256(lengths),
            "first": self.first,
            "seq_length": seq_length,
            "num_samples": num_samples,
            "seed": seed,
            "shuffle": shuffle,
        }
        self.indices = _as_indices(cached_arrays(cache_dir, "gpt", meaning, lambda: _as_arrays(build())))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Sample `index` of the shuffled order, int64 [seq_length + 1]: inputs [:-1], labels [1:]."""
        return read_sample(self.corpus, self.indices, self._row(index), self.seq_length)

    def pieces(self, index: int) -> list[tuple[int, int, int]]:
        """The origin of sample `index`: (sequence of the corpus, token offset, number of tokens), in order."""
        return list(sample_pieces(self.corpus, self.indices, self._row(index)))

    def _row(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return int(self.indices.shuffle_index[index])


def _as_arrays(indices: SampleIndices) -> Arrays:
    return {name: getattr(indices, name) for name in ("document_index", "sample_index", "shuffle_index")}


def _as_indices(arrays: dict[str, NDArray[Any]]) -> SampleIndices:
    return SampleIndices(**arrays)
