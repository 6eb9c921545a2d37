"""Training samples cut from a corpus, in Megatron's order, bit for bit, without compiled code.

A split is a contiguous range of sequences. Its documents are repeated over epochs and shuffled (document index),
their tokens are one stream cut every `seq_length` tokens (sample index), the cuts are shuffled (shuffle index).
Source of the algorithm: Megatron-LM, megatron/core/datasets/gpt_dataset.py and helpers.cpp; the sample index is
its closed form: a running sum and a binary search instead of a loop.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trainer.data.indexed_dataset import CorpusError, IndexedDataset

SplitName = Literal["train", "valid", "test"]
SPLIT_NAMES: tuple[SplitName, ...] = ("train", "valid", "test")
SEPARATE_LAST_EPOCH_BELOW = 0.80
CACHE_FORMAT = 1

Array = npt.NDArray[Any]


def split_weights(text: str) -> tuple[float, float, float]:
    """`900,50,50` as three fractions. Any of `,` `/` `;` or space separates; missing ones are 0.

    Raises ValueError for more than three numbers or a sum of 0.
    """
    numbers = [float(number) for number in re.findall(r"[.0-9]+", text)]
    if len(numbers) > 3 or sum(numbers) <= 0:
        raise ValueError(f"split {text!r}: give one to three weights for train, valid and test, such as 900,50,50")
    numbers += [0.0] * (3 - len(numbers))
    total = sum(numbers)
    return numbers[0] / total, numbers[1] / total, numbers[2] / total


def split_bounds(text: str, num_sequences: int) -> dict[SplitName, tuple[int, int]]:
    """The range [start, end) of sequences of each split: running sums of the weights, rounded half to even."""
    bounds, end = [0], 0.0
    for weight in split_weights(text):
        end += weight
        bounds.append(round(end * float(num_sequences)))
    return {name: (bounds[index], bounds[index + 1]) for index, name in enumerate(SPLIT_NAMES)}


@dataclass(frozen=True)
class GPTIndices:
    """The three indices of a dataset."""

    document: Array
    """Sequence numbers in the order in which their tokens are read (int32)."""
    sample: Array
    """[number of samples + 1, 2]: position in `document`, token offset in that sequence."""
    shuffle: Array
    """Sample numbers in the order in which they are trained on."""


def num_epochs(tokens_per_epoch: int, seq_length: int, num_samples: int | None, extra: int) -> int:
    """The least number of passes that gives `num_samples` samples; 1 without a number."""
    if num_samples is None:
        return 1
    return max(1, -(-(num_samples * seq_length + extra) // tokens_per_epoch))


def build_indices(
    sizes: Array,
    documents: Array,
    seq_length: int,
    num_samples: int | None,
    seed: int,
    *,
    add_extra_token: bool = True,
    drop_last_partial: bool = True,
) -> GPTIndices:
    """Megatron's indices for the sequences `documents` (int32) of a corpus with sequence lengths `sizes` (int32).

    Raises CorpusError when the documents hold no full sample.
    """
    extra = int(add_extra_token)
    per_epoch = int(sizes[documents].sum(dtype=np.int64))
    if per_epoch == 0:
        raise CorpusError("the split holds no tokens")
    epochs = num_epochs(per_epoch, seq_length, num_samples, extra)
    separate, samples_sans_last = False, 0
    if epochs > 1:
        assert num_samples is not None
        samples_sans_last = ((epochs - 1) * per_epoch - extra) // seq_length
        last = num_samples - samples_sans_last
        separate = last < int(SEPARATE_LAST_EPOCH_BELOW * ((per_epoch - extra) // seq_length))
    generator = np.random.RandomState(seed)
    document = _document_index(documents, epochs, generator, separate)
    total = epochs * per_epoch
    count = (total - extra) // seq_length if drop_last_partial else -(-(total - extra) // seq_length)
    if count <= 0:
        raise CorpusError(f"the split holds {per_epoch} tokens, one sample needs {seq_length + extra}")
    sample = _sample_index(sizes, document, seq_length, count, extra)
    return GPTIndices(document, sample, _shuffle_index(count, samples_sans_last, generator, separate))


def _document_index(documents: Array, epochs: int, generator: np.random.RandomState, separate: bool) -> Array:
    if not separate:
        index = np.tile(documents.astype(np.int32), epochs)
        generator.shuffle(index)
        return index
    first = _document_index(documents, epochs - 1, generator, False)
    return np.concatenate([first, _document_index(documents, 1, generator, False)])


def _sample_index(sizes: Array, document: Array, seq_length: int, count: int, extra: int) -> Array:
    lengths = sizes[document].astype(np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(count + 1, dtype=np.int64) * seq_length
    positions[-1] = min(int(positions[-1]), int(ends[-1]) - extra)
    index = np.searchsorted(ends, positions, "right" if extra else "left")
    offsets = positions - (ends[index] - lengths[index])
    index[0], offsets[0] = 0, 0
    small = max(len(document), int(sizes.max(initial=0))) <= 2**31 - 1
    return np.stack([index, offsets], axis=1).astype(np.int32 if small else np.int64)


def _shuffle_index(count: int, samples_sans_last: int, generator: np.random.RandomState, separate: bool) -> Array:
    dtype: Any = np.uint32 if count < 2**32 - 2 else np.int64
    border = samples_sans_last if separate else count
    first = np.arange(border, dtype=dtype)
    generator.shuffle(first)
    if border == count:
        return first
    second = np.arange(border, count, dtype=dtype)
    generator.shuffle(second)
    return np.concatenate([first, second])


class GPTDataset:
    """Samples of `seq_length` + 1 tokens; neighbours in the stream share one token, so inputs and labels are shifts."""

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
    ) -> None:
        """`num_samples`: how many will be asked for (whole epochs are built), or None for one epoch.

        An empty split has no samples. Indices are kept in `cache_dir` under a name that holds the content of the
        corpus. Raises CorpusError when a split that is not empty holds no full sample.
        """
        self.corpus, self.seq_length = corpus, seq_length
        start, end = split_bounds(split_weights, len(corpus))[split]
        self.documents: Array = np.arange(start, end, dtype=np.int32)
        num_tokens = int(corpus.sequence_lengths[start:end].sum(dtype=np.int64))
        self.indices: GPTIndices | None = None
        if num_tokens <= seq_length and num_samples is None:
            return
        if num_tokens == 0:
            return
        description = {
            "format": CACHE_FORMAT,
            "corpus": corpus_digest(corpus) if cache_dir else "",
            "range": [start, end],
            "seq_length": seq_length,
            "num_samples": num_samples,
            "seed": seed,
        }
        self.indices = _cached(
            cache_dir,
            description,
            lambda: build_indices(corpus.sequence_lengths, self.documents, seq_length, num_samples, seed),
        )

    def __len__(self) -> int:
        """Number of samples."""
        return 0 if self.indices is None else len(self.indices.shuffle)

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        """Sample `index` as int64 [seq_length + 1]. Raises IndexError past the end."""
        if self.indices is None or not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} samples, no number {index}")
        sample, document = self.indices.sample, self.indices.document
        row = int(self.indices.shuffle[index])
        first, first_offset = int(sample[row, 0]), int(sample[row, 1])
        last, last_offset = int(sample[row + 1, 0]), int(sample[row + 1, 1])
        if first == last:
            pieces = [self.corpus.get(int(document[first]), first_offset, last_offset - first_offset + 1)]
        else:
            pieces = [self.corpus.get(int(document[first]), first_offset)]
            pieces += [self.corpus.get(int(document[item])) for item in range(first + 1, last)]
            pieces.append(self.corpus.get(int(document[last]), 0, last_offset + 1))
        return np.concatenate(pieces).astype(np.int64)


def corpus_digest(corpus: IndexedDataset) -> str:
    """sha256 over .idx and .bin: what the indices were built from, whatever its name, size and date."""
    digest = hashlib.sha256()
    for path in (corpus.idx_path, corpus.bin_path):
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _cached(cache_dir: Path | None, description: dict[str, Any], build: Any) -> GPTIndices:
    if cache_dir is None:
        indices: GPTIndices = build()
        return indices
    name = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_dir / name
    if not folder.is_dir():
        # Several ranks may build at the same moment: each writes its own folder, the first rename wins, all are equal.
        built: GPTIndices = build()
        temporary = cache_dir / f".{name}.{uuid.uuid4().hex}"
        temporary.mkdir(parents=True)
        for field in ("document", "sample", "shuffle"):
            np.save(temporary / f"{field}.npy", getattr(built, field))
        (temporary / "description.json").write_text(json.dumps(description, indent=1))
        try:
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():
                raise
            for path in temporary.iterdir():
                path.unlink()
            temporary.rmdir()
    loaded = {field: np.load(folder / f"{field}.npy", mmap_mode="r") for field in ("document", "sample", "shuffle")}
    return GPTIndices(**loaded)
