"""Stages as Prefect tasks against a real server: states, retries, keys, locks."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from toy_stages import COUNT, WRITE, CountConfig, WriteConfig

from tasks.artifacts import Artifact
from tasks.configuration import Resources
from tasks.errors import StageError, TransientError, UserError
from tasks.orchestration import FlockLockManager, stage_task
from tasks.store import ArtifactStore

pytestmark = pytest.mark.usefixtures("prefect_api")
write, count = stage_task(WRITE), stage_task(COUNT)


@flow(name="toy", validate_parameters=False)
def toy(
    root: Path, config: WriteConfig, count_config: CountConfig, refresh: tuple[str, ...] = ()
) -> dict[str, tuple[Artifact, bool]]:
    store = ArtifactStore(root)
    documents, written_cached = write(store, config, [], "write" in refresh)
    urls, count_cached = count(store, count_config, [documents], "count" in refresh)
    return {"write": (documents, written_cached), "count": (urls, count_cached)}


def cached(result: dict[str, tuple[Artifact, bool]]) -> dict[str, bool]:
    return {name: pair[1] for name, pair in result.items()}


def task_states(run_name: str = "") -> list[tuple[str, str]]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return [(run.name, run.state.name) for run in client.read_task_runs(limit=50) if run.state]


def test_the_matrix_of_reasons_to_run(tmp_path: Path) -> None:
    one, two = WriteConfig(resources=Resources(workers=1)), CountConfig()
    assert cached(toy(tmp_path, one, two)) == {"write": False, "count": False}
    assert cached(toy(tmp_path, one, two)) == {"write": True, "count": True}
    more_workers = WriteConfig(resources=Resources(workers=2))
    assert cached(toy(tmp_path, more_workers, two)) == {"write": True, "count": True}
    assert cached(toy(tmp_path, one, CountConfig(factor=2))) == {"write": True, "count": False}
    assert cached(toy(tmp_path, one, two, ("write",))) == {"write": False, "count": True}
    changed = WriteConfig(rows_per_shard=3, resources=Resources(workers=1))
    assert cached(toy(tmp_path, changed, two)) == {"write": False, "count": False}
    time.sleep(1.0)  # states travel to the server as events
    assert "Cached" in {state for _, state in task_states()}


def test_a_deleted_file_makes_its_stage_run_again_and_no_other(tmp_path: Path) -> None:
    one, two = WriteConfig(resources=Resources(workers=1)), CountConfig()
    made = toy(tmp_path, one, two)
    store = ArtifactStore(tmp_path)
    (store.path_of(made["write"][0]) / "documents-00000.jsonl.zst").unlink()
    assert cached(toy(tmp_path, one, two)) == {"write": False, "count": True}
    assert cached(toy(tmp_path, one, two)) == {"write": True, "count": True}


def test_records_that_are_cut_or_thrown_away_lose_nothing(tmp_path: Path) -> None:
    one, two = WriteConfig(resources=Resources(workers=1)), CountConfig()
    toy(tmp_path, one, two)
    records = sorted(path for path in (tmp_path / ".records").iterdir() if path.is_file())
    records[0].write_bytes(records[0].read_bytes()[:40])
    records[1].write_bytes(b"")
    assert cached(toy(tmp_path, one, two)) == {"write": True, "count": True}
    for path in records:
        path.unlink()
    assert cached(toy(tmp_path, one, two)) == {"write": True, "count": True}


def test_only_what_may_heal_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.orchestration.RETRY_DELAYS_SECONDS", [0.1, 0.1])
    armed = tmp_path / "armed"
    armed.touch()
    config = WriteConfig(fail_at="1", armed=str(armed), resources=Resources(workers=1))
    quick = stage_task(WRITE)

    @flow(name="retries", validate_parameters=False)
    def retries() -> Artifact:
        return quick(ArtifactStore(tmp_path / "store"), config, [])[0]

    artifact: Any = retries()
    attempts = (ArtifactStore(tmp_path / "store").path_of(artifact) / ".attempts").read_text().split()
    assert attempts == ["0", "1", "2", "3"], "finished shards are kept, the failed one is done again"


def test_a_final_error_is_raised_at_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def broken(build: Any, config: WriteConfig) -> Any:
        calls.append(1)
        raise StageError("nothing left")

    from dataclasses import replace

    stage = stage_task(replace(WRITE, name="broken", run=broken))

    @flow(name="final", validate_parameters=False)
    def final() -> Any:
        return stage(ArtifactStore(tmp_path), WriteConfig(), [])

    with pytest.raises(StageError, match="nothing left"):
        final()
    assert calls == [1]


def test_an_input_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    @flow(name="wrong", validate_parameters=False)
    def wrong() -> Any:
        store = ArtifactStore(tmp_path)
        documents, _ = write(store, WriteConfig(num_shards=1), [])
        return write(store, WriteConfig(), [documents])

    with pytest.raises(UserError, match="the stage write takes"):
        wrong()


def test_a_lock_excludes_and_dies_with_its_holder(tmp_path: Path) -> None:
    one, two = FlockLockManager(tmp_path), FlockLockManager(tmp_path)
    assert one.acquire_lock("key", "a", acquire_timeout=1)
    assert one.acquire_lock("key", "a") and one.is_lock_holder("key", "a")
    assert not two.acquire_lock("key", "b", acquire_timeout=0.3)
    assert two.is_locked("key") and not two.wait_for_lock("key", timeout=0.3)
    with pytest.raises(ValueError, match="no lock held by b"):
        two.release_lock("key", "b")
    threading.Timer(0.3, lambda: one.release_lock("key", "a")).start()
    assert two.acquire_lock("key", "b", acquire_timeout=5)
    two.release_lock("key", "b")
    assert pickle.loads(pickle.dumps(one)).directory == tmp_path


def test_transient_is_the_only_class_that_heals() -> None:
    from prefect.states import Failed

    from tasks.orchestration import _heals

    def state(error: BaseException) -> Any:
        return Failed(data=error)

    assert _heals(None, None, state(TransientError("x")))  # type: ignore[arg-type]
    assert not _heals(None, None, state(StageError("x")))  # type: ignore[arg-type]
    assert not _heals(None, None, state(ValueError("x")))  # type: ignore[arg-type]
