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
    """Rank 0's event lines: one JSON object a line on standard output and in OUTPUT_DIR/metrics.jsonl."""

    def __init__(self, output_dir: Path, *, enabled: bool) -> None:
        self._path, self._enabled = output_dir / METRICS_NAME, enabled

    def emit(self, event: str, **fields: Any) -> None:
        """Say that `event` happened. Numbers that are not finite become null: JSON has none of them."""
        if not self._enabled:
            return
        clean = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }
        line = json.dumps({"event": event, **clean})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def cut_after(self, step: int) -> None:
        """Forget steps past `step`, and endings: training goes on from there, and its lines come again."""
        if not self._enabled or not self._path.exists():
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8").split("\n"):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line that a kill cut short
            if event.get("event") in ("step", "evaluate") and event["step"] <= step:
                kept.append(line)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        temporary.replace(self._path)


def write_run_state(output_dir: Path, status: str, step: int, exit_code: ExitCode | None = None) -> None:
    """OUTPUT_DIR/run_state.json, whole or not at all: what a caller asks instead of torchrun's exit code."""
    state = {"status": status, "step": step, "exit_code": None if exit_code is None else int(exit_code)}
    temporary = output_dir / f".{RUN_STATE_NAME}.{os.getpid()}"
    temporary.write_text(json.dumps(state), encoding="utf-8")
    temporary.replace(output_dir / RUN_STATE_NAME)
