from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toy_stages import COUNT, COUNT_TWIN, WRITE, CountConfig, WriteConfig

from tasks.configuration import Resources
from tasks.errors import CorruptArtifactError, StageError, TransientError, UserError
from tasks.manifest import MANIFEST_NAME
from tasks.progress import SilentProgress, StageReport, add_reports
from tasks.records import read_rows
from tasks.store import ArtifactStore


def attempts(store: ArtifactStore, directory: Path) -> list[str]:
    return (directory / ".attempts").read_text().split()


def test_a_second_run_finds_what_the_first_made(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    first, cached = store.produce(WRITE, WriteConfig(), ())
    assert not cached
    again, cached = store.produce(WRITE, WriteConfig(), ())
    assert cached and again == first
    assert sorted(path.name for path in store.path_of(first).glob("documents*")) == [
        f"documents-0000{index}.jsonl.zst" for index in range(4)
    ]
    assert not list((tmp_path / ".work").iterdir())


def test_resources_say_how_fast_and_never_what(tmp_path: Path) -> None:
    one = ArtifactStore(tmp_path / "a").run(WRITE, WriteConfig(resources=Resources(workers=1)), ())
    two = ArtifactStore(tmp_path / "b").run(WRITE, WriteConfig(resources=Resources(workers=2)), ())
    assert one.key == two.key and one.fingerprint == two.fingerprint


def test_an_early_stage_that_makes_the_same_bytes_invalidates_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    documents = store.run(WRITE, WriteConfig(), ())
    store.run(COUNT, CountConfig(), [documents])
    refreshed, cached = store.produce(WRITE, WriteConfig(), (), refresh=True)
    assert not cached and refreshed.fingerprint == documents.fingerprint
    assert store.produce(COUNT, CountConfig(), [refreshed])[1]


def test_two_stages_with_the_same_function_have_results_of_their_own(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    documents = store.run(WRITE, WriteConfig(), ())
    one, two = (store.run(stage, CountConfig(), [documents]) for stage in (COUNT, COUNT_TWIN))
    assert one.key != two.key and one.stage != two.stage


@pytest.mark.parametrize("damage", ["delete", "cut", "empty", "change", "manifest"])
def test_a_damaged_artifact_never_counts(tmp_path: Path, damage: str) -> None:
    store, progress = ArtifactStore(tmp_path), SilentProgress()
    first = store.run(WRITE, WriteConfig(), ())
    path = store.path_of(first) / "documents-00001.jsonl.zst"
    if damage == "delete":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "change":
        content = bytearray(path.read_bytes())
        content[20] ^= 255
        path.write_bytes(content)
    else:
        (store.path_of(first) / MANIFEST_NAME).write_text("{")
    again, cached = store.produce(WRITE, WriteConfig(), (), progress)
    assert not cached and again == first
    assert progress.notes and ("count" in progress.notes[0] or "again" in progress.notes[0])
    store.check(again, thorough=True)


def test_a_flipped_byte_with_the_same_size_and_time_is_found_by_a_thorough_check(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    artifact = store.run(WRITE, WriteConfig(), ())
    path = store.path_of(artifact) / "documents-00001.jsonl.zst"
    stamp = path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[20] ^= 255
    path.write_bytes(content)
    os.utime(path, ns=(stamp, stamp))
    with pytest.raises(CorruptArtifactError, match="documents-00001"):
        store.check(artifact, thorough=True)


def test_a_damaged_input_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    documents = store.run(WRITE, WriteConfig(), ())
    (store.path_of(documents) / "documents-00000.jsonl.zst").unlink()
    with pytest.raises(CorruptArtifactError, match="documents-00000"):
        store.run(COUNT, CountConfig(), [documents])


def test_a_moved_store_still_hits(tmp_path: Path) -> None:
    ArtifactStore(tmp_path / "a").run(WRITE, WriteConfig(), ())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert ArtifactStore(tmp_path / "b").produce(WRITE, WriteConfig(), ())[1]


def test_a_wrong_input_is_refused_by_kind(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    urls = store.run(COUNT, CountConfig(), [store.run(WRITE, WriteConfig(), ())])
    with pytest.raises(UserError, match="the stage count takes DocumentShards"):
        store.run(COUNT, CountConfig(), [urls])


def test_a_failed_shard_is_retried_alone(tmp_path: Path) -> None:
    store, armed = ArtifactStore(tmp_path / "store"), tmp_path / "armed"
    armed.touch()
    config = WriteConfig(fail_at="2", armed=str(armed), resources=Resources(workers=1))
    with pytest.raises(TransientError, match="hiccupped"):
        store.run(WRITE, config, ())
    artifact = store.run(WRITE, config, ())
    rows = [row for path in sorted(store.path_of(artifact).glob("*.zst")) for row in read_rows(path)]
    assert len({row.document.id for row in rows if row.document}) == len(rows) == 40
    assert attempts(store, store.path_of(artifact)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_in_the_middle_keeps_finished_shards_and_gives_the_same_bytes(tmp_path: Path, workers: int) -> None:
    undisturbed = ArtifactStore(tmp_path / "calm").run(WRITE, WriteConfig(armed=str(tmp_path / "armed")), ())
    armed = tmp_path / "armed"
    armed.touch()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tasks.configuration import Resources\n"
        "from tasks.store import ArtifactStore\n"
        "from toy_stages import WRITE, WriteConfig\n"
        "if __name__ == '__main__':\n"
        f"    config = WriteConfig(kill_at='2', armed=sys.argv[2], resources=Resources(workers={workers}))\n"
        "    ArtifactStore(Path(sys.argv[3])).run(WRITE, config, ())\n"
    )
    (tmp_path / "child.py").write_text(script)
    command = [
        sys.executable,
        str(tmp_path / "child.py"),
        str(Path(__file__).parent),
        str(armed),
        str(tmp_path / "store"),
    ]
    child = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if workers == 1:
        assert child.returncode == -signal.SIGKILL
    else:
        assert "died while it worked on shard" in child.stderr
    assert not (tmp_path / "store" / "artifacts").exists()
    store = ArtifactStore(tmp_path / "store")
    config = WriteConfig(kill_at="2", armed=str(armed), resources=Resources(workers=workers))
    artifact = store.run(WRITE, config, ())
    assert [entry.sha256 for entry in artifact.files] == [entry.sha256 for entry in undisturbed.files]
    worked = attempts(store, store.path_of(artifact))
    assert sorted(worked) == ["0", "1", "2", "3"], "finished shards are not worked on again"
    assert not list(store.path_of(artifact).glob("*.tmp"))


def test_two_processes_that_want_one_key_make_it_once(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tasks.store import ArtifactStore\n"
        "from toy_stages import WRITE, WriteConfig\n"
        "config = WriteConfig(rows_per_shard=20000)\n"
        "print(ArtifactStore(Path(sys.argv[2])).produce(WRITE, config.model_copy(update={'resources': "
        "config.resources.model_copy(update={'workers': 1})}), ())[1])\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)]
    root = Path(__file__).parents[2]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(2)]
    answers = sorted(child.communicate(timeout=60)[0].strip() for child in children)
    assert answers == ["False", "True"]


def test_a_report_out_of_balance_is_not_published(tmp_path: Path) -> None:
    report = StageReport(unit="documents", num_in=3, num_out=1, dropped={"short": 1})
    with pytest.raises(StageError, match="3 documents in, 1 out, 1 dropped"):
        report.check_balance()


def test_reports_add_up() -> None:
    first, second = StageReport(unit="pages", num_in=2, num_out=1), StageReport(unit="pages", num_in=1)
    first.drop("empty", "a")
    second.drop("empty", "b")
    total = add_reports([first, second], "pages")
    total.check_balance()
    assert (total.num_in, total.dropped, total.examples) == (3, {"empty": 2}, {"empty": ["a", "b"]})
