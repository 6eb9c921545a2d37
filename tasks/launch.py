"""Child processes: JSON status lines, signals, time limits, and no orphan whatever happens.

A child speaks by printing one JSON object with an "event" a line on its standard output; every other line is
log text. All of it goes to a log file; events go to the caller as they come. The child and all that it started
are one process group: it is ended when the caller leaves, and asked to end by the kernel when the caller is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.engine import die_with_parent_signal
from tasks.errors import ChildFailedError

KEPT_LINES = 30
DEFAULT_GRACE_SECONDS = 30.0


@dataclass
class ChildResult:
    """How a child ended."""

    exit_code: int
    last_lines: list[str]
    events: list[dict[str, Any]] = field(default_factory=list)
    """The events that are no metrics: done, error, warning."""


def run_child(
    command: Sequence[str],
    *,
    name: str,
    log_path: Path,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
    accepted_exit_codes: Sequence[int] = (0,),
) -> ChildResult:
    """Run `command` to its end and return how it ended.

    `environment` is added to this process's own. After `timeout_seconds` the group is told to end (SIGTERM), and
    `grace_seconds` later it is killed. Raises ChildFailedError, with the child's last lines, for an exit code that
    is not among `accepted_exit_codes`, and TimeoutError when the time limit ended it.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    child = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        bufsize=1,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        start_new_session=True,
        preexec_fn=die_with_parent_signal(signal.SIGTERM),
    )
    timed_out = threading.Event()

    def out_of_time() -> None:
        timed_out.set()
        end_group(child, grace_seconds)

    timer = threading.Timer(timeout_seconds, out_of_time) if timeout_seconds else None
    tail: deque[str] = deque(maxlen=KEPT_LINES)
    events: list[dict[str, Any]] = []
    if timer:
        timer.daemon = True
        timer.start()
    try:
        assert child.stdout is not None
        with log_path.open("a", encoding="utf-8") as log:
            for line in child.stdout:
                log.write(line)
                log.flush()
                event = parse_event(line)
                if event is None:
                    tail.append(line.rstrip("\n"))
                    continue
                if event["event"] in ("done", "error", "warning"):
                    events.append(event)
                    tail.append(line.rstrip("\n"))
                if on_event is not None:
                    on_event(event)
        exit_code = child.wait()
    finally:
        if timer:
            timer.cancel()
        end_group(child, grace_seconds)
        if child.stdout is not None:
            child.stdout.close()
    if timed_out.is_set():
        raise TimeoutError(f"{name} took longer than {timeout_seconds} seconds and was ended; log: {log_path}")
    if exit_code not in accepted_exit_codes:
        raise ChildFailedError(name, exit_code, tail)
    return ChildResult(exit_code, list(tail), events)


def parse_event(line: str) -> dict[str, Any] | None:
    """The event in a line of a child's output, or None for log text."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def end_group(child: subprocess.Popen[str], grace_seconds: float) -> None:
    """End a child and all that it started: SIGTERM, then SIGKILL after the grace time. Does nothing to a dead group."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait()
    # The leader may be gone while something it started is not.
    _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]
