"""Follow a training child: its events become progress, its run-state file the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.errors import ChildFailedError, StageError, UserError
from tasks.progress import Progress

EXIT_CONFIG, EXIT_PREEMPTED, EXIT_NAN, EXIT_HANG, EXIT_BAD_CHECKPOINT = 2, 3, 4, 5, 6
MEANINGS = {
    EXIT_PREEMPTED: "training was told to stop; the checkpoint is saved. Run the same command to go on",
    EXIT_NAN: "training stopped because loss or gradients were not finite several times in a row; lower the rate",
    EXIT_HANG: "a rank did not answer in time",
    EXIT_BAD_CHECKPOINT: "the checkpoint to go on from is damaged",
}


class TrainingWatch:
    """Hears the events of one training run."""

    def __init__(self, progress: Progress, num_steps: int) -> None:
        self._progress, self._last_step = progress, 0
        self.error: dict[str, Any] | None = None
        progress.start("training", num_steps, "steps")

    def hear(self, event: dict[str, Any]) -> None:
        """One event line of the child."""
        kind = event["event"]
        if kind == "step":
            self._progress.advance(int(event["step"]) - self._last_step)
            self._last_step = int(event["step"])
            self._progress.metric(event)
        elif kind in ("evaluate", "checkpoint"):
            self._progress.metric(event)
        elif kind == "resume":
            self._progress.note(f"going on from step {event.get('step')}")
            self._progress.advance(int(event.get("step", 0)) - self._last_step)
            self._last_step = int(event.get("step", 0))
        elif kind == "warning":
            self._progress.note(str(event.get("message")))
        elif kind == "error":
            self.error = event

    def explain(self, failure: ChildFailedError, run_state_path: Path) -> StageError | UserError:
        """The failure in plain words: the child's own message where it had one, else what its exit code means."""
        code = _exit_code(run_state_path, failure.exit_code)
        message = str(self.error.get("message")) if self.error else ""
        if self.error and code == EXIT_CONFIG:
            remedy = str(self.error.get("remedy") or "Change it in the recipe or with --set.")
            return UserError("train", self.error.get("value"), message, remedy)
        if code in MEANINGS:
            return StageError(f"{MEANINGS[code]}{': ' + message if message else ''} (exit code {code})")
        return StageError(message) if message else failure


def _exit_code(run_state_path: Path, exit_code: int) -> int:
    # torchrun answers 1 whatever its workers answered, so their own word counts.
    try:
        state = json.loads(run_state_path.read_bytes())
    except (OSError, ValueError):
        return exit_code
    return EXIT_PREEMPTED if state.get("status") == "preempted_saved" else int(state.get("exit_code") or exit_code)
