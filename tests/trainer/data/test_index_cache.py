"""Indices kept between runs: found again, never stale, never half-written, whoever builds at the same time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.data import index_cache
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.index_cache import cached_arrays
from trainer.data.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def write(prefix: Path, lengths: list[int], first_token: int = 0) -> IndexedDataset:
    with IndexedDatasetBuilder(prefix, np.uint16) as builder:
        builder.add_documents([np.arange(length) + first_token for length in lengths])
    return IndexedDataset(prefix)


def dataset(corpus: IndexedDataset, cache: Path | None, **changes: Any) -> GPTDataset:
    settings: dict[str, Any] = {
        "split": "train", "split_weights": "3,1", "seq_length": 8, "num_samples": 100, "seed": 1, "cache_dir": cache,
    }  # fmt: skip
    return GPTDataset(corpus, **(settings | changes))


def rows(found: GPTDataset) -> list[list[int]]:
    return [found[index].tolist() for index in range(len(found))]


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_a_second_run_builds_nothing(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c", [20, 30, 25, 40])
    first = rows(dataset(corpus, tmp_path / "cache"))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert len(stamps) == 3
    assert rows(dataset(corpus, tmp_path / "cache")) == first == rows(dataset(corpus, None))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")} == stamps


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"seq_length": 9}, {"num_samples": 101}, {"num_samples": None}, {"split_weights": "1,1"},
     {"split": "valid"}, {"shuffle": False}],
)  # fmt: skip
def test_every_setting_is_in_the_name(tmp_path: Path, change: dict[str, Any]) -> None:
    corpus = write(tmp_path / "c", [20, 30, 25, 40])
    dataset(corpus, tmp_path / "cache")
    changed = dataset(corpus, tmp_path / "cache", **change)
    assert len(folders(tmp_path / "cache")) == 2
    assert rows(changed) == rows(dataset(corpus, None, **change))


def test_other_data_under_the_same_path_is_never_read_with_an_old_order(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    dataset(write(tmp_path / "c", [20, 30, 25, 40]), cache)
    # The same number of documents and tokens, then the same lengths with other tokens.
    for lengths, first_token in (([40, 25, 30, 20], 0), ([20, 30, 25, 40], 1000)):
        corpus = write(tmp_path / "c", lengths, first_token)
        assert rows(dataset(corpus, cache)) == rows(dataset(corpus, None))


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "description", "swapped", "garbage"])
def test_a_damaged_folder_is_built_again(tmp_path: Path, damage: str) -> None:
    corpus = write(tmp_path / "c", [20, 30, 25, 40])
    wanted = rows(dataset(corpus, tmp_path / "cache"))
    (folder,) = folders(tmp_path / "cache")
    path = folder / "sample_index.npy"
    match damage:
        case "cut":
            os.truncate(path, path.stat().st_size - 8)
        case "empty":
            os.truncate(path, 0)
        case "gone":
            path.unlink()
        case "description":
            (folder / "description.json").write_text("{")
        case "swapped":
            shutil.copy(folder / "shuffle_index.npy", path)
        case "garbage":
            path.write_bytes(b"garbage" * 100)
    assert rows(dataset(corpus, tmp_path / "cache")) == wanted
    assert rows(dataset(corpus, tmp_path / "cache")) == wanted
    assert len(folders(tmp_path / "cache")) == 1


def test_what_a_killed_builder_left_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write(tmp_path / "c", [20, 30, 25, 40])
    cache = tmp_path / "cache"

    class Killed(BaseException):
        pass

    def killed(*args: object, **kwargs: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(index_cache.shutil, "rmtree", lambda *args, **kwargs: None)
        patch.setattr(index_cache.np, "save", killed)
        with pytest.raises(Killed):
            dataset(corpus, cache)
    assert len(folders(cache)) == 1 and folders(cache)[0].name.endswith(".tmp")
    assert rows(dataset(corpus, cache)) == rows(dataset(corpus, None))
    assert [path.suffix for path in folders(cache)] == [""]


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    corpus = write(tmp_path / "c", [20, 30, 25, 40])
    assert rows(dataset(corpus, tmp_path / "cache")) == rows(dataset(corpus, None))
    assert "the indices are kept in memory" in caplog.text


def build_slowly(cache: str, barrier: Any, results: Any) -> None:
    barrier.wait()

    def build() -> dict[str, np.ndarray]:
        return {"values": np.random.default_rng(3).integers(0, 100, 200_000)}

    arrays = cached_arrays(Path(cache), "test", {"what": 1}, build)
    results.put((int(arrays["values"].sum()), len(arrays["values"])))


def test_many_builders_at_once_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=build_slowly, args=(str(tmp_path), barrier, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = {results.get(timeout=30) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(found) == 1 and [worker.exitcode for worker in workers] == [0] * 4
    assert len(folders(tmp_path)) == 1


def test_a_reader_never_sees_half_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without locks (some network file systems have none) both build; the second finds the folder of the first.
    def no_lock(*args: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(index_cache.fcntl, "flock", no_lock)
    arrays = {"values": np.arange(10)}

    def build() -> dict[str, np.ndarray]:
        with monkeypatch.context() as patch:
            patch.setattr(index_cache, "_load", lambda *args: None)
            cached_arrays(tmp_path, "test", {"what": 1}, lambda: arrays)
        return arrays

    assert cached_arrays(tmp_path, "test", {"what": 1}, build)["values"].tolist() == list(range(10))
    assert len(folders(tmp_path)) == 1
