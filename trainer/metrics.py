"""The run's own words: event lines, metrics file, run-state file, exit codes. Free of torch."""

from __future__ import annotations

import json
import math
import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

METRICS_NAME = "metrics.jsonl"
RUN_STATE_NAME = "run_state.json"


class ExitCode(IntEnum):
    """How a training process ends."""

    DONE = 0
    FAILED = 1
    CONFIG = 2
    PREEMPTED = 3
    NOT_FINITE = 4
    HANG = 5
    BAD_CHECKPOINT = 6


class TrainError(Exception):
    """A reason to end, with what the user can do and the exit code."""

    def __init__(self, message: str, remedy: str = "", exit_code: ExitCode = ExitCode.FAILED) -> None:
        self.remedy, self.exit_code = remedy, exit_code
        super().__init__(message)


class EventLog:
    """Rank 0's event lines: one JSON object a line on standard output and in OUTPUT_DIR/metrics.jsonl.

    The file of a run that was stopped and went on is that of a run that was not, but for timings: what a process says
    of itself alone (`say`) is not in it, and lines past the step from which a process goes on are cut.
    """

    def __init__(self, output_dir: Path, *, enabled: bool) -> None:
        self._path, self._enabled = output_dir / METRICS_NAME, enabled

    def emit(self, event: str, **fields: Any) -> None:
        """Say that `event` happened, and keep it in the file. Numbers that are not finite become null."""
        if self._enabled:
            self.say(event, **fields)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(_line(event, fields))

    def say(self, event: str, **fields: Any) -> None:
        """Say it on standard output alone."""
        if self._enabled:
            sys.stdout.write(_line(event, fields))
            sys.stdout.flush()

    def cut_after(self, step: int, *, saved: bool) -> None:
        """Forget what came after `step`, and how earlier processes ended: training goes on from there.

        `saved`: a checkpoint of this step belongs to the run, so its line is added where a kill came before it.
        """
        if not self._enabled or (step == 0 and not self._path.exists()):
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8").split("\n") if self._path.exists() else []:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line that a kill cut short
            if event.get("event") in ("step", "evaluate", "checkpoint", "warning") and event.get("step", 0) <= step:
                kept.append(line + "\n")
        checkpoint = _line("checkpoint", {"step": step})
        if saved and checkpoint not in kept:
            kept.append(checkpoint)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self._path)


def _line(event: str, fields: dict[str, Any]) -> str:
    clean = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in fields.items()
    }
    return json.dumps({"event": event, **clean}) + "\n"


def write_run_state(output_dir: Path, status: str, step: int | None, exit_code: ExitCode | None = None) -> None:
    """OUTPUT_DIR/run_state.json, whole or not at all: what a caller asks instead of torchrun's exit code.

    `step` None keeps the step that is there.
    """
    path = output_dir / RUN_STATE_NAME
    if step is None:
        try:
            step = int(json.loads(path.read_bytes())["step"])
        except (OSError, ValueError, KeyError, TypeError):
            step = 0
    state = {"status": status, "step": step, "exit_code": None if exit_code is None else int(exit_code)}
    temporary = output_dir / f".{RUN_STATE_NAME}.{os.getpid()}"
    temporary.write_text(json.dumps(state), encoding="utf-8")
    temporary.replace(path)
