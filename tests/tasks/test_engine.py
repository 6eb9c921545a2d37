from __future__ import annotations

from pathlib import Path

import pytest
from toy_stages import WriteConfig, write_shard

from tasks.engine import map_shards
from tasks.errors import StageError
from tasks.progress import SilentProgress


def run(directory: Path, workers: int, num_shards: int = 3, rows: int = 5) -> list[int]:
    config = WriteConfig(rows_per_shard=rows).model_dump()
    shards = [(str(index), (index, config)) for index in range(num_shards)]
    results = map_shards(
        write_shard, shards, directory, workers=workers, progress=SilentProgress(), description="writing"
    )
    return [result.report.num_out for result in results]


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_any_number_of_workers_gives_the_same_files_in_order(tmp_path: Path, workers: int) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    assert run(tmp_path / "one", 1) == run(tmp_path / "many", workers) == [5, 5, 5]
    for path in (tmp_path / "one").glob("*.zst"):
        assert path.read_bytes() == (tmp_path / "many" / path.name).read_bytes()


def test_a_finished_shard_is_not_worked_on_again(tmp_path: Path) -> None:
    run(tmp_path, 1)
    run(tmp_path, 1, num_shards=4)
    assert (tmp_path / ".attempts").read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("damage", ["file", "marker"])
def test_a_shard_whose_file_or_marker_is_cut_is_done_again(tmp_path: Path, damage: str) -> None:
    run(tmp_path, 1)
    path = tmp_path / "documents-00001.jsonl.zst" if damage == "file" else tmp_path / ".shards" / "1.json"
    path.write_bytes(path.read_bytes()[:10])
    run(tmp_path, 1)
    assert (tmp_path / ".attempts").read_text().split() == ["0", "1", "2", "1"]


def test_shard_names_must_differ(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="not unique"):
        map_shards(
            write_shard,
            [("a", (0, {})), ("a", (1, {}))],
            tmp_path,
            workers=1,
            progress=SilentProgress(),
            description="",
        )
