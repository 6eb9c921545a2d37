"""The order of samples against Megatron-LM's own indices, and the laws of packing."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainer.data import index_format
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import CorpusError, IndexedDataset, IndexedDatasetBuilder
from trainer.data.sample_indices import build_sample_index, build_sample_indices, plan_epochs
from trainer.data.splits import split_bounds

CORPORA = {"short": (57, 1, 40), "mid": (1000, 1, 900), "long": (20, 2000, 9000), "zeros": (200, 0, 6)}
quick = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def corpus_sizes() -> dict[str, NDArray[np.int32]]:
    rng = np.random.default_rng(5)
    return {name: rng.integers(low, high, n).astype(np.int32) for name, (n, low, high) in CORPORA.items()}


def write(prefix: Path, sizes: NDArray[Any]) -> IndexedDataset:
    stream = np.arange(int(sizes.sum())) * 7919 % 50257
    with IndexedDatasetBuilder(prefix, np.uint16) as builder:
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            builder.add_item(stream[end - size : end])
            builder.end_document()
    return IndexedDataset(prefix)


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_data / "golden-gpt-samples" / "golden.json").read_text())
    return found


def test_golden_vectors(golden: dict[str, Any], tmp_path: Path) -> None:
    sizes = corpus_sizes()
    corpora = {name: write(tmp_path / name, lengths) for name, lengths in sizes.items()}
    assert len(golden["gpt"]) == 60
    for case in golden["gpt"]:
        name = case["corpus"]
        assert digest(sizes[name]) == case["sizes_sha"]
        assert digest(np.frombuffer((tmp_path / f"{name}.idx").read_bytes(), np.uint8)) == case["idx_sha"]
        dataset = GPTDataset(
            corpora[name],
            split="train",
            split_weights=case["split"],
            seq_length=case["seq"],
            num_samples=case["num_samples"],
            seed=case["seed"],
        )
        label = {key: value for key, value in case.items() if key != "sizes"}
        assert len(dataset) == case["n"], label
        assert (dataset.plan.num_epochs, dataset.plan.last_is_separate) == (case["epochs"], case["separate_last"]), (
            label
        )
        assert digest(dataset.indices.document_index) == case["doc_sha"], label
        assert digest(dataset.indices.sample_index) == case["sample_sha"], label
        assert digest(dataset.indices.shuffle_index) == case["shuffle_sha"], label
        assert dataset[0][:8].tolist() == case["first_tokens"], label
        assert dataset[0][1:9].tolist() == case["first_labels"], label
        assert dataset[0].dtype == np.int64 and len(dataset[0]) == case["seq"] + 1


def test_a_small_golden_vector() -> None:
    # One of the golden vectors in full, so that the order is checked even where the shared data is not.
    sizes = corpus_sizes()["short"]
    start, stop = split_bounds("900,50,50", len(sizes))["train"]
    indices = build_sample_indices(sizes, start, stop, seq_length=8, num_samples=35, seed=1234)
    assert digest(indices.document_index) == "bec245fb1624c377"
    assert digest(indices.sample_index) == "258e250a821cc3eb"
    assert digest(indices.shuffle_index) == "fdd430d78c3c7772"


sizes_strategy = st.lists(st.integers(0, 12), min_size=1, max_size=40).filter(lambda sizes: sum(sizes) > 0)


@quick
@given(
    sizes=sizes_strategy, seq_length=st.integers(1, 20), num_epochs=st.integers(1, 3), seed=st.integers(0, 2**32 - 1)
)
def test_packing_loses_no_token(tmp_path: Path, sizes: list[int], seq_length: int, num_epochs: int, seed: int) -> None:
    corpus = write(tmp_path / "c", np.array(sizes))
    num_samples = max(1, (num_epochs * sum(sizes) - 1) // seq_length)
    dataset = GPTDataset(
        corpus, split="train", split_weights="1", seq_length=seq_length, num_samples=num_samples, seed=seed
    )
    documents = dataset.indices.document_index
    stream = np.concatenate([corpus[int(index)] for index in documents])
    assert len(dataset) == (len(stream) - 1) // seq_length >= num_samples
    seen = Counter()  # type: Counter[int]
    for index in range(len(dataset)):
        row = int(dataset.indices.shuffle_index[index])
        sample = dataset[index]
        assert sample.tolist() == stream[row * seq_length : (row + 1) * seq_length + 1].tolist()
        pieces = [corpus.get(*piece) for piece in dataset.pieces(index)]
        assert np.concatenate(pieces).tolist() == sample.tolist()
        seen[row] += 1
    assert seen == Counter(range(len(dataset))), "each sample comes once"
    per_epoch = Counter(documents.tolist())
    assert set(per_epoch.values()) == {dataset.plan.num_epochs} and len(per_epoch) == len(corpus)


@quick
@given(sizes=sizes_strategy, seq_length=st.integers(1, 9), chunk=st.integers(1, 7))
def test_the_sample_index_does_not_depend_on_the_chunk(sizes: list[int], seq_length: int, chunk: int) -> None:
    lengths = np.array(sizes, dtype=np.int32)
    documents = np.random.default_rng(len(sizes)).permutation(len(sizes)).astype(np.int32)
    count = (sum(sizes) - 1) // seq_length
    whole = build_sample_index(lengths, documents, seq_length, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_format, "CHUNK_ITEMS", chunk)
        assert np.array_equal(build_sample_index(lengths, documents, seq_length, count), whole)
    # The slow way: walk through the stream, token by token.
    owners = [(place, offset) for place, doc in enumerate(documents) for offset in range(sizes[doc])]
    assert whole[1:].tolist() == [list(owners[row * seq_length]) for row in range(1, count + 1)]


def test_the_number_of_epochs_is_the_least() -> None:
    assert plan_epochs(100, 10, 9).num_epochs == 1
    assert plan_epochs(100, 10, 10).num_epochs == 2  # 10 samples need 101 tokens
    assert plan_epochs(1, 1024, 10).num_epochs == 10241
    assert plan_epochs(5, 10, None).num_samples == 0


def test_samples_beyond_2_31_tokens() -> None:
    lengths = np.full(3, 2**30, dtype=np.int32)
    index = build_sample_index(lengths, np.arange(3, dtype=np.int32), 2**20, 3 * 2**10 - 1)
    assert index[2**11].tolist() == [2, 0] and index[-1].tolist() == [2, 2**30 - 2**20]


def test_an_empty_split_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = write(tmp_path / "c", np.array([100]))
    with caplog.at_level(logging.WARNING):
        valid = GPTDataset(corpus, split="valid", split_weights="969,30,1", seq_length=9, num_samples=20, seed=1)
    assert len(valid) == 0 and "gives the part 'valid' no tokens; it is skipped" in caplog.text
    with pytest.raises(IndexError, match="sample 0 of 0"):
        valid[0]
    with pytest.raises(CorpusError, match="gives the part 'train' no tokens; there is nothing to train on"):
        GPTDataset(corpus, split="train", split_weights="0,1", seq_length=9, num_samples=20, seed=1)
    assert len(GPTDataset(corpus, split="train", split_weights="1", seq_length=100, num_samples=None, seed=1)) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "dev"}, "known are train, valid, test"),
        ({"seq_length": 0}, "seq_length = 0"),
        ({"seed": -1}, "between 0 and"),
        ({"seed": 2**32}, "between 0 and"),
        ({"num_samples": 0}, "num_samples = 0"),
        ({"split_weights": "1,2,3,4"}, "one to three weights"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    corpus = write(tmp_path / "c", np.array([100]))
    settings: dict[str, Any] = {"split": "train", "split_weights": "1", "seq_length": 9, "num_samples": 3, "seed": 1}
    with pytest.raises(CorpusError, match=message):
        GPTDataset(corpus, **(settings | changes))


def test_without_shuffling_samples_come_in_file_order(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c", np.array([7, 0, 30, 4]))
    dataset = GPTDataset(
        corpus, split="train", split_weights="1", seq_length=5, num_samples=None, seed=1, shuffle=False
    )
    stream = np.concatenate(corpus[0:4])
    assert [dataset[index].tolist() for index in range(len(dataset))] == [
        stream[start : start + 6].tolist() for start in range(0, 40, 5)
    ]
