"""Several corpora in one run, mixed by weight in Megatron-LM's order (megatron/core/datasets/blended_dataset.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.data.errors import CorpusError
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.index_cache import cached_arrays
from trainer.data.indexed_dataset import IndexedDataset
from trainer.data.splits import SplitName

SURPLUS_FRACTION = 0.005
"""Samples built beyond what the weights ask for: the order may draw a few more than the rounded share."""
MAX_DATASETS = 2**15 - 1
"""A dataset's number is stored as int16."""
FEW_DATASETS = 6
"""Up to so many, plain floats are faster than arrays."""


def normalised_weights(weights: Sequence[float]) -> list[float]:
    """Weights divided by their sum, in double precision. Raises CorpusError unless all are finite and above 0."""
    if not weights or any(not (weight > 0 and math.isfinite(weight)) for weight in weights):
        raise CorpusError(f"blend weights {list(weights)}: at least one is needed, and all must be above 0")
    values = np.asarray(weights, dtype=np.float64)
    normalised: list[float] = (values / values.sum()).tolist()
    return normalised


@dataclass(frozen=True)
class BlendPlan:
    """How many samples a blend draws from each dataset."""

    num_samples: int
    """Length of the blend, at least what was asked for."""
    requests: tuple[int, ...]
    """Samples to build in each dataset, a little more than the blend is meant to draw."""


def plan_blend(weights: Sequence[float], num_samples: int) -> BlendPlan:
    """Shares of `num_samples` by weight, each rounded up; the blend is as long as their sum.

    Raises CorpusError as `normalised_weights` does, and for less than one sample.
    """
    if num_samples < 1:
        raise CorpusError(f"num_samples = {num_samples}: a blend has at least one sample")
    shares = [math.ceil(num_samples * weight) for weight in normalised_weights(weights)]
    requests = tuple(math.ceil(share * (1 + SURPLUS_FRACTION)) for share in shares)
    return BlendPlan(sum(shares), requests)


def blend_indices(weights: Sequence[float], num_samples: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Which dataset gives the i-th sample of a blend (int16 [num_samples]), and which of its samples (int64).

    Greedy and without chance: each place goes to the dataset that lags most behind its weight, the first of equals,
    argmax_j(w_j * max(i, 1) - drawn_j). Datasets give their samples in their own order. `weights` are normalised.
    """
    shares = normalised_weights(weights)
    if len(shares) > MAX_DATASETS:
        raise CorpusError(f"a blend holds at most {MAX_DATASETS:,} datasets, not {len(shares):,}")
    if len(shares) <= FEW_DATASETS:
        dataset_index = _blend_few(shares, num_samples)
    else:
        dataset_index = _blend_many(np.asarray(shares), num_samples)
    return dataset_index, _running_counts(dataset_index, len(shares))


def _blend_few(shares: list[float], num_samples: int) -> NDArray[np.int16]:
    chosen = bytearray(num_samples)
    drawn = [0.0] * len(shares)
    pairs = list(enumerate(shares))
    for place in range(num_samples):
        position = float(place) if place else 1.0
        best, lag = 0, -math.inf
        for dataset, share in pairs:
            error = share * position - drawn[dataset]
            if error > lag:
                best, lag = dataset, error
        chosen[place] = best
        drawn[best] += 1.0
    return np.frombuffer(chosen, dtype=np.uint8).astype(np.int16)


def _blend_many(shares: NDArray[np.float64], num_samples: int) -> NDArray[np.int16]:
    chosen = np.empty(num_samples, dtype=np.int16)
    drawn = np.zeros(len(shares))
    error = np.empty(len(shares))
    for place in range(num_samples):
        np.multiply(shares, float(max(place, 1)), out=error)
        np.subtract(error, drawn, out=error)
        best = error.argmax()
        chosen[place] = best
        drawn[best] += 1.0
    return chosen


def _running_counts(dataset_index: NDArray[np.int16], num_datasets: int) -> NDArray[np.int64]:
    counts = np.empty(len(dataset_index), dtype=np.int64)
    for dataset in range(num_datasets):
        places = np.flatnonzero(dataset_index == dataset)
        counts[places] = np.arange(len(places))
    return counts


def exhaust_indices(sizes: Sequence[int]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """The order that draws every sample of every dataset exactly once; each place goes as in `blend_indices`, with
    the sizes as weights, among the datasets that still have samples.
    """
    total = sum(sizes)
    if total == 0:
        raise CorpusError("a blend of empty datasets has no samples")
    shares = np.asarray(sizes, dtype=np.float64) / total
    left = np.asarray(sizes, dtype=np.int64).copy()
    drawn = np.zeros(len(shares))
    chosen = np.empty(total, dtype=np.int16)
    for place in range(total):
        error = shares * float(max(place, 1)) - drawn
        error[left == 0] = -np.inf
        best = int(error.argmax())
        chosen[place] = best
        drawn[best] += 1.0
        left[best] -= 1
    return chosen, _running_counts(chosen, len(sizes))


class BlendedDataset:
    """Samples of several datasets in one order; the same interface as GPTDataset."""

    def __init__(
        self,
        datasets: Sequence[GPTDataset],
        *,
        weights: Sequence[float] | None,
        num_samples: int | None,
        cache_dir: Path | None = None,
    ) -> None:
        """Mix `datasets`.

        With weights: `num_samples` samples in their proportion. Without weights: each dataset counts by its length,
        and every sample is drawn once, or only the first `num_samples` of the order. Raises CorpusError when weights
        and datasets do not match, when weights come without a number, or when a dataset has too few samples.
        """
        if weights is None:
            datasets = [dataset for dataset in datasets if len(dataset)]
        sizes = [len(dataset) for dataset in datasets]
        if weights is not None and len(weights) != len(datasets):
            raise CorpusError(f"{len(weights)} weights for {len(datasets)} datasets; give one for each")
        if weights is not None and num_samples is None:
            raise CorpusError("a blend with weights needs num_samples; without weights each sample is drawn once")
        if weights is None and num_samples is not None and num_samples >= sum(sizes):
            num_samples = None
        self.datasets = list(datasets)
        meaning: dict[str, object] = {"weights": weights and list(weights), "num_samples": num_samples, "sizes": sizes}

        def build() -> dict[str, NDArray[np.int16] | NDArray[np.int64]]:
            if num_samples is None:
                dataset_index, sample_index = exhaust_indices(sizes)
            else:
                dataset_index, sample_index = blend_indices(weights or sizes, num_samples)
            return {"dataset_index": dataset_index, "dataset_sample_index": sample_index}

        arrays = cached_arrays(cache_dir, "blend", meaning, build)
        self.dataset_index, self.dataset_sample_index = arrays["dataset_index"], arrays["dataset_sample_index"]
        for dataset, size in enumerate(sizes):
            needed = int(np.count_nonzero(self.dataset_index == dataset))
            if needed > size:
                raise CorpusError(
                    f"dataset {dataset} of the blend ({self.datasets[dataset].corpus.prefix}) has {size:,} samples, "
                    f"{needed:,} are drawn from it; build it with the number that plan_blend gives"
                )

    def __len__(self) -> int:
        return len(self.dataset_index)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Sample `index` of the blend, int64 [seq_length + 1]."""
        return self.datasets[int(self.dataset_index[index])][int(self.dataset_sample_index[index])]


def build_blend(
    corpora: Sequence[IndexedDataset],
    *,
    weights: Sequence[float] | None,
    split: SplitName,
    split_weights: str,
    seq_length: int,
    num_samples: int | None,
    seed: int,
    cache_dir: Path | None = None,
) -> BlendedDataset:
    """The samples of a split of several corpora, mixed by weight; see GPTDataset and BlendedDataset.

    With weights each corpus is gone through as often as its share asks for; without, once. Raises CorpusError when
    weights come without `num_samples`.
    """
    requests: Sequence[int | None] = [None] * len(corpora)
    if weights is not None and num_samples is not None:
        plan = plan_blend(weights, num_samples)
        num_samples, requests = plan.num_samples, plan.requests
    datasets = [
        GPTDataset(
            corpus,
            split=split,
            split_weights=split_weights,
            seq_length=seq_length,
            num_samples=request,
            seed=seed,
            cache_dir=cache_dir,
        )
        for corpus, request in zip(corpora, requests, strict=True)
    ]
    return BlendedDataset(datasets, weights=weights, num_samples=num_samples, cache_dir=cache_dir)
