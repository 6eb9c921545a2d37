"""Locks that die with their holder: flock on a file that stays. No lock survives a kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tasks.progress import Progress

POLL_SECONDS = 0.2


def try_lock(path: Path) -> int | None:
    """Take the lock and return its descriptor (close it to let go), or None when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def exclusive(path: Path, progress: Progress, what: str) -> Iterator[bool]:
    """Hold the lock on `path`, waiting for it as long as it takes. Yields True when there was a wait."""
    waited = False
    while (descriptor := try_lock(path)) is None:
        if not waited:
            waited = True
            progress.note(f"another run is working on {what}; waiting for it")
        time.sleep(POLL_SECONDS)
    try:
        yield waited
    finally:
        os.close(descriptor)
