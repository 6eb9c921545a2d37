"""map over shards: in one process or several, order kept, resumable shard by shard.

The work of a shard is a module-level function that reads its inputs and writes its outputs under the names it
is given, then returns a StageReport. A marker written after the outputs says that the shard is whole; a rerun
after a crash skips marked shards. What is made depends on the shards alone, never on the number of workers.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from tasks.errors import StageError
from tasks.progress import Progress, StageReport

S = TypeVar("S")

PR_SET_PDEATHSIG = 1
QUEUED_SHARDS_PER_WORKER = 2


class ShardResult(BaseModel):
    """One finished shard: its files (relative to the stage directory, with sizes) and its report."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, int]
    report: StageReport


def die_with_parent_signal(number: signal.Signals) -> Callable[[], None]:
    """A function for a new process: the kernel sends it `number` when its parent dies (Linux; nothing elsewhere).

    Everything it needs is made here, before the process is: after a fork nothing may be imported.
    """
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl
    expected_parent = os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != expected_parent:  # it died before the call
            os._exit(1)

    return ask


def _die_with_parent() -> None:
    # In a spawned worker the parent is the process that made the pool, or its helper is already gone.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


def _worker_starts() -> None:
    _die_with_parent()
    # Ctrl-C reaches the whole group; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _marker(directory: Path, name: str) -> Path:
    return directory / ".shards" / f"{name}.json"


def _finished(directory: Path, name: str) -> ShardResult | None:
    """The result of a shard that an earlier attempt finished, if all its files are there in their full size."""
    try:
        result = ShardResult.model_validate_json(_marker(directory, name).read_bytes())
        if all((directory / file).stat().st_size == size for file, size in result.files.items()):
            return result
    except (OSError, ValueError):
        pass
    return None


def _work_one(
    work: Callable[[S, Path], tuple[list[str], StageReport]], shard: S, directory: Path, name: str
) -> ShardResult:
    files, report = work(shard, directory)
    result = ShardResult(files={file: (directory / file).stat().st_size for file in files}, report=report)
    marker = _marker(directory, name)
    temporary = marker.with_suffix(".tmp")
    temporary.write_text(result.model_dump_json())
    temporary.replace(marker)
    return result


def map_shards(
    work: Callable[[S, Path], tuple[list[str], StageReport]],
    shards: Sequence[tuple[str, S]],
    directory: Path,
    *,
    workers: int,
    progress: Progress,
    description: str,
) -> list[ShardResult]:
    """Run `work(shard, directory)` for every (name, shard) and return the results in shard order.

    `work` must be a module-level function and `shard` picklable when `workers` > 1. It returns the names of the
    files it wrote (relative to `directory`, whole when it returns) and its report. Names are unique and stable:
    they are the identity of a shard over reruns. An exception of a shard ends the map and is raised here as it
    is; finished shards stay finished. A worker that dies raises StageError naming the shard.
    """
    names = [name for name, _ in shards]
    if len(set(names)) != len(names):
        raise StageError(f"shard names are not unique: {names}")
    (directory / ".shards").mkdir(parents=True, exist_ok=True)
    progress.start(description, len(shards), "shards")
    results: dict[str, ShardResult] = {}
    waiting: list[tuple[str, S]] = []
    for name, shard in shards:
        if (done := _finished(directory, name)) is not None:
            results[name] = done
            progress.advance()
        else:
            waiting.append((name, shard))
    workers = min(workers, len(waiting))
    if workers <= 1:
        for name, shard in waiting:
            results[name] = _work_one(work, shard, directory, name)
            progress.advance()
    else:
        _map_in_processes(work, waiting, directory, workers, progress, results)
    return [results[name] for name in names]


def _map_in_processes(
    work: Callable[[S, Path], tuple[list[str], StageReport]],
    waiting: list[tuple[str, S]],
    directory: Path,
    workers: int,
    progress: Progress,
    results: dict[str, ShardResult],
) -> None:
    # Fresh interpreters: the parent may hold threads and locks that a fork would copy in mid-air.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_worker_starts) as pool:
        running: dict[Future[ShardResult], str] = {}

        def collect() -> None:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                name = running.pop(future)
                try:
                    results[name] = future.result()
                except BrokenProcessPool as error:
                    raise StageError(
                        f"a worker process died while it worked on shard {name} (killed, or out of memory)"
                    ) from error
                progress.advance()

        try:
            for name, shard in waiting:
                running[pool.submit(_work_one, work, shard, directory, name)] = name
                if len(running) >= workers * QUEUED_SHARDS_PER_WORKER:
                    collect()
            while running:
                collect()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
