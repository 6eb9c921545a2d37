"""The only shared Prefect glue: a stage becomes a task, its key Prefect's cache key, its report a table.

The cache record is Prefect's own (a small JSON file under STORE/.records); the manifest in the store is the one
truth. A record whose artifact is gone, short or changed is passed over; an artifact without a record (a new
machine, a moved store, records thrown away) is found by its key and the task ends in state `Cached` all the same.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from prefect import State, Task, task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.locking.protocol import LockManager
from prefect.logging import get_run_logger
from prefect.results import ResultStore
from prefect.states import Completed
from prefect.transactions import IsolationLevel

from tasks.artifacts import Artifact
from tasks.configuration import StageConfig
from tasks.errors import TransientError
from tasks.locks import POLL_SECONDS, try_lock
from tasks.progress import Progress
from tasks.stages import Stage
from tasks.store import ArtifactStore

A = TypeVar("A", bound=Artifact)

RETRIES = 2
RETRY_DELAYS_SECONDS = [2.0, 15.0]
RETRY_JITTER = 0.3
PROGRESS_EVERY_SECONDS = 2.0
MOST_STALE_RECORDS = 100


class FlockLockManager(LockManager):
    """Prefect's lock protocol over flock, so that a lock dies with its holder.

    Prefect's own FileSystemLockManager leaves its file behind after a kill -9, and the next run waits for ever.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self._held: dict[str, tuple[str, int]] = {}
        self._mutex = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> FlockLockManager:
        # CachePolicy.configure copies deeply; a copy that does not know what is held could not let go of it.
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"directory": self.directory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.directory = state["directory"]
        self._held, self._mutex = {}, threading.Lock()

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.record-lock"

    def _try(self, key: str, holder: str) -> bool:
        with self._mutex:
            if key in self._held:
                return self._held[key][0] == holder
            descriptor = try_lock(self._path(key))
            if descriptor is None:
                return False
            self._held[key] = (holder, descriptor)
            return True

    def acquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """Wait for the lock, at most `acquire_timeout` seconds."""
        end = None if acquire_timeout is None else time.monotonic() + acquire_timeout
        while not self._try(key, holder):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """As acquire_lock, without blocking the loop."""
        end = None if acquire_timeout is None else time.monotonic() + acquire_timeout
        while not self._try(key, holder):
            if end is not None and time.monotonic() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def release_lock(self, key: str, holder: str) -> None:
        """Raises ValueError when `holder` does not hold it."""
        with self._mutex:
            held = self._held.get(key)
            if held is None or held[0] != holder:
                raise ValueError(f"no lock held by {holder} for {key}")
            del self._held[key]
            os.close(held[1])

    def is_locked(self, key: str) -> bool:
        """Whether anybody holds it."""
        with self._mutex:
            if key in self._held:
                return True
            descriptor = try_lock(self._path(key))
            if descriptor is None:
                return True
            os.close(descriptor)
            return False

    def is_lock_holder(self, key: str, holder: str) -> bool:
        """Whether `holder` holds it in this process."""
        held = self._held.get(key)
        return held is not None and held[0] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until nobody holds it."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_locked(key):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """As wait_for_lock, without blocking the loop."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_locked(key):
            if end is not None and time.monotonic() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True


@dataclass
class StageKeyPolicy(CachePolicy):
    """Prefect's cache key of a task run: the artifact's key, past records whose artifact is not sound any more."""

    stage: Stage[Any] | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """`STAGE-KEY`, or `STAGE-KEY-rN` where earlier records point at artifacts that do not count."""
        del flow_parameters, kwargs
        stage, store = self.stage, ArtifactStore(Path(inputs["store_root"]))
        assert stage is not None, "stage_task gives every policy its stage"
        base = f"{stage.name}-{stage.key(inputs['config'], inputs['artifacts'])[:40]}"
        # Only a look: the lock is taken afterwards, and a record in memory says nothing about the files.
        records: ResultStore = task_ctx.result_store.model_copy(
            update={"lock_manager": None, "cache_result_in_memory": False}
        )
        for attempt in range(MOST_STALE_RECORDS):
            key = base if attempt == 0 else f"{base}-r{attempt}"
            if not records.exists(key) or _is_sound(records, key, store):
                return key
        return None


def _is_sound(records: ResultStore, key: str, store: ArtifactStore) -> bool:
    try:
        artifact = records.read(key).result
        store.check(artifact)
    except Exception:  # noqa: BLE001 - a record that cannot be read, for whatever reason, does not count
        return False
    return isinstance(artifact, Artifact)


class RunProgress:
    """Progress of a task run: to the run's log, to a progress artifact that moves, and to an attached terminal."""

    def __init__(self, stage_name: str, display: Progress | None) -> None:
        self._stage_name, self._display = stage_name, display
        self._log = get_run_logger()
        self._artifact_id: Any = None
        self._done, self._total, self._updated = 0, 0, 0.0

    def start(self, description: str, total: int | None, unit: str) -> None:
        self._done, self._total = 0, total or 0
        self._log.info("%s: %s %s", description, "unknown number of" if total is None else total, unit)
        if total and os.environ.get("PREFECT_API_URL"):
            identity = create_progress_artifact(0.0, key=f"{self._stage_name}-progress", description=description)
            self._artifact_id = identity
        if self._display:
            self._display.start(description, total, unit)

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if self._display:
            self._display.advance(amount)
        now = time.monotonic()
        if self._artifact_id is not None and now - self._updated > PROGRESS_EVERY_SECONDS:
            self._updated = now
            update_progress_artifact(self._artifact_id, progress=min(100.0, 100.0 * self._done / self._total))

    def note(self, message: str) -> None:
        self._log.warning("%s", message)
        if self._display:
            self._display.note(message)

    def metric(self, event: dict[str, object]) -> None:
        self._log.debug("%s", event)
        if self._display:
            self._display.metric(event)

    def finish(self) -> None:
        """The stage is done: the bar is full."""
        if self._artifact_id is not None:
            update_progress_artifact(self._artifact_id, progress=100.0)


DisplayFactory = Callable[[str], Progress]
_display_factory: DisplayFactory | None = None


def attach_display(factory: DisplayFactory | None) -> None:
    """Let every stage of this process also report to `factory(stage name)` (the terminal), or to nothing."""
    global _display_factory
    _display_factory = factory


def _heals(task_: Task[..., Any], run: Any, state: State[Any]) -> bool:
    del task_, run
    try:
        state.result()
    except TransientError:
        return True
    except BaseException:  # noqa: BLE001 - anything else is final; it is raised to the flow by Prefect itself
        return False
    return False


def report_table(store: ArtifactStore, artifact: Artifact) -> list[dict[str, Any]]:
    """The stage report as rows for a table: in, out, then every reason."""
    report = store.manifest_of(artifact).report
    if report is None:
        return []
    rows: list[dict[str, Any]] = [{"what": f"{report.unit} in", "count": report.num_in}]
    rows.append({"what": f"{report.unit} out", "count": report.num_out})
    rows += [{"what": f"dropped: {reason}", "count": count} for reason, count in report.dropped.items()]
    rows += [{"what": name, "count": count} for name, count in report.counts.items()]
    rows += [{"what": name, "count": round(number, 6)} for name, number in report.numbers.items()]
    return rows


def stage_task(stage: Stage[A]) -> Callable[..., tuple[A, bool]]:
    """The Prefect task of a stage, as a function.

    `run(store, config, artifacts, refresh=False)` returns the artifact and whether nothing had to be done for it.
    Retried on TransientError only. Its state is `Cached` when nothing was done.
    """

    @task(
        name=stage.name,
        description=stage.description,
        version=str(stage.version),
        tags=[f"stage:{stage.name}"],
        persist_result=True,
        result_serializer="json",
        retries=RETRIES,
        retry_delay_seconds=RETRY_DELAYS_SECONDS,
        retry_jitter_factor=RETRY_JITTER,
        retry_condition_fn=_heals,
        log_prints=False,
    )
    def run_stage(store_root: str, config: StageConfig, artifacts: list[Artifact], refresh: bool) -> A | State[A]:
        store = ArtifactStore(Path(store_root))
        display = _display_factory(stage.name) if _display_factory else None
        progress = RunProgress(stage.name, display)
        artifact, cached = store.produce(stage, config, artifacts, progress, refresh=refresh)
        progress.finish()
        if rows := report_table(store, artifact):
            create_table_artifact(key=f"{stage.name}-report", table=rows, description=stage.description)
        return Completed(name="Cached", message="found in the store", data=artifact) if cached else artifact

    def run(
        store: ArtifactStore, config: StageConfig, artifacts: list[Artifact], refresh: bool = False
    ) -> tuple[A, bool]:
        locks = FlockLockManager(store.root / ".locks")
        policy = StageKeyPolicy(stage=stage).configure(isolation_level=IsolationLevel.SERIALIZABLE, lock_manager=locks)
        store.root.mkdir(parents=True, exist_ok=True)
        bound = run_stage.with_options(
            cache_policy=policy,
            result_storage=store.root / ".records",
            refresh_cache=refresh,
            timeout_seconds=getattr(config.resources, "timeout_seconds", None),
        )
        state = bound(str(store.root), config, artifacts, refresh, return_state=True)
        return cast(A, state.result()), state.name == "Cached"

    run.__name__ = f"run_{stage.name.replace('-', '_')}"
    return run
