"""Sampling for the command line: the parent's side, free of torch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.infer.jobs import GenerateJob, run_job


def sample_directory(job: GenerateJob, on_event: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Write texts with the model in `job.model_directory`; returns the `done` event.

    `on_event` gets {"event": "token", "index", "text"} when `job.stream` is set, {"event": "sample", ...} for every
    text, and warnings. Raises as `tasks.infer.jobs.run_job` does.
    """
    with tempfile.TemporaryDirectory(prefix="url2lm-sample-") as folder:
        return run_job(
            job,
            job_path=Path(folder) / "job.json",
            log_path=Path(folder) / "sample.log",
            on_event=on_event,
            timeout_seconds=job.resources.timeout_seconds,
        )
