"""`python -m trainer --config job.json`, or `torchrun ... -m trainer --config job.json` for several ranks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from trainer.config import TrainJob
from trainer.metrics import EventLog, ExitCode, TrainError, write_run_state


def read_job(path: Path) -> TrainJob:
    """The job file. Raises TrainError that names the field, the value and the rule."""
    try:
        return TrainJob.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TrainError(f"{path} cannot be read ({error})", "Give a job file.", ExitCode.CONFIG) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "job"
        message = f"{field}: {first['msg'].removeprefix('Value error, ')}"
        raise TrainError(message, "Change it in the job file.", ExitCode.CONFIG) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Train. Returns the exit code (trainer.metrics.ExitCode)."""
    parser = argparse.ArgumentParser(description="Train a GPT on a .bin/.idx corpus.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file of a trainer.config.TrainJob")
    path: Path = parser.parse_args(arguments).config
    job: TrainJob | None = None
    try:
        job = read_job(path)
        from trainer.train import StopSignal, train

        stop = StopSignal()
        stop.install()
        code = train(job, stop)
    except TrainError as error:
        _say(job, error)
        code = error.exit_code
    _leave_group()
    return int(code)


def _say(job: TrainJob | None, error: TrainError) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    if job is None:
        fields = {"event": "error", "message": str(error), "remedy": error.remedy, "exit_code": int(error.exit_code)}
        sys.stdout.write(json.dumps(fields) + "\n")
        return
    job.output_dir.mkdir(parents=True, exist_ok=True)
    EventLog(job.output_dir, enabled=True).emit(
        "error", message=str(error), remedy=error.remedy, exit_code=int(error.exit_code)
    )
    write_run_state(job.output_dir, "failed", 0, error.exit_code)


def _leave_group() -> None:
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
