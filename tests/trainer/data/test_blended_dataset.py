"""Blends against Megatron-LM's order, and what a blend promises."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.data import blended_dataset
from trainer.data.blended_dataset import BlendedDataset, blend_indices, build_blend, exhaust_indices, plan_blend
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import CorpusError, IndexedDataset, IndexedDatasetBuilder


def write(prefix: Path, num_documents: int, first_token: int) -> IndexedDataset:
    with IndexedDatasetBuilder(prefix, np.int32) as builder:
        builder.add_documents([np.arange(30) + first_token + 30 * number for number in range(num_documents)])
    return IndexedDataset(prefix)


def sampled(corpus: IndexedDataset, num_samples: int | None = None) -> GPTDataset:
    return GPTDataset(corpus, split="train", split_weights="1", seq_length=10, num_samples=num_samples, seed=1)


@pytest.mark.parametrize("few_datasets", [6, 0])
def test_golden_vectors(shared_data: Path, few_datasets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blended_dataset, "FEW_DATASETS", few_datasets)
    for case in json.loads((shared_data / "golden-gpt-samples" / "golden.json").read_text())["blend"]:
        dataset_index, _ = blend_indices(case["weights"], case["size"])
        assert dataset_index[:24].tolist() == case["dataset_index"]
        assert np.bincount(dataset_index).tolist() == case["counts"]
        assert hashlib.sha256(dataset_index.tobytes()).hexdigest()[:16] == case["sha"]


@settings(deadline=None, max_examples=50)
@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=8), num_samples=st.integers(1, 300))
def test_a_blend_keeps_its_shares_and_counts_each_dataset_up(weights: list[float], num_samples: int) -> None:
    dataset_index, sample_index = blend_indices(weights, num_samples)
    drawn = Counter(dataset_index.tolist())
    for dataset, weight in enumerate(weights):
        assert abs(drawn[dataset] - num_samples * weight / sum(weights)) < len(weights)
        assert sample_index[dataset_index == dataset].tolist() == list(range(drawn[dataset]))


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any))
def test_exhausting_draws_every_sample_once(sizes: list[int]) -> None:
    pairs = list(zip(*(index.tolist() for index in exhaust_indices(sizes)), strict=True))
    assert sorted(pairs) == [(dataset, sample) for dataset, size in enumerate(sizes) for sample in range(size)]


def test_shares_are_rounded_up_with_a_surplus() -> None:
    plan = plan_blend([0.3, 0.7], 1001)
    assert plan.num_samples == 301 + 701 and plan.requests == (303, 705)


def test_a_blend_of_corpora(tmp_path: Path) -> None:
    corpora = [write(tmp_path / "a", 5, 0), write(tmp_path / "b", 50, 10_000)]
    blend = build_blend(
        corpora, weights=[3, 1], split="train", split_weights="1", seq_length=10, num_samples=80, seed=1,
        cache_dir=tmp_path / "cache",
    )  # fmt: skip
    origins = Counter(int(blend[index][0] >= 10_000) for index in range(len(blend)))
    assert origins == {0: 60, 1: 20}
    again = BlendedDataset(blend.datasets, weights=[3, 1], num_samples=80, cache_dir=tmp_path / "cache")
    assert [again[index].tolist() for index in range(80)] == [blend[index].tolist() for index in range(80)]


def test_without_weights_each_sample_comes_once(tmp_path: Path) -> None:
    datasets = [sampled(write(tmp_path / name, number, 0)) for name, number in (("a", 5), ("b", 9))]
    blend = BlendedDataset(datasets, weights=None, num_samples=None)
    assert len(blend) == sum(map(len, datasets))
    part = BlendedDataset(datasets, weights=None, num_samples=10)
    assert len(part) == 10


def test_what_cannot_be_blended_is_refused(tmp_path: Path) -> None:
    datasets = [sampled(write(tmp_path / name, 5, 0)) for name in "ab"]
    with pytest.raises(CorpusError, match="1 weights for 2 datasets"):
        BlendedDataset(datasets, weights=[1], num_samples=4)
    with pytest.raises(CorpusError, match="needs num_samples"):
        BlendedDataset(datasets, weights=[1, 1], num_samples=None)
    with pytest.raises(CorpusError, match="all must be above 0"):
        BlendedDataset(datasets, weights=[1, 0], num_samples=4)
    with pytest.raises(CorpusError, match=r"dataset 0 of the blend \(.*\) has 14 samples, 90 are drawn"):
        BlendedDataset(datasets, weights=[9, 1], num_samples=100)
