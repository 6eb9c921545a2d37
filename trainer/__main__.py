"""`python -m trainer --config job.json`, or `torchrun ... -m trainer --config job.json` for several ranks."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from trainer.config import TrainConfig, TrainJob
from trainer.metrics import EventLog, ExitCode, TrainError, write_run_state


def read_job(path: Path) -> TrainJob:
    """The job file. Raises TrainError that names the field, the value and the rule."""
    try:
        return TrainJob.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TrainError(f"{path} cannot be read ({error})", "Give a job file.", ExitCode.CONFIG) from error
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> TrainError:
    """The first mistake of a job file in one line; for an unknown name the right ones and the nearest."""
    first = error.errors(include_url=False)[0]
    place = list(first["loc"])
    field = ".".join(str(part) for part in place) or "job"
    if first["type"] != "extra_forbidden":
        message = f"{field}: {first['msg'].removeprefix('Value error, ')}"
        value = first["input"]
        given = "" if isinstance(value, (dict, TrainConfig)) or first["type"] == "missing" else f" (it is {value!r})"
        return TrainError(message + given, "Change it in the job file.", ExitCode.CONFIG)
    known = sorted(_fields_at(place[:-1]))
    close = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return TrainError(f"{field}: there is no such setting", f"{hint}Known: {', '.join(known)}", ExitCode.CONFIG)


def _fields_at(place: Sequence[int | str]) -> list[str]:
    """Names of the settings at a place of the job file."""
    model: type[BaseModel] = TrainJob
    for name in place:
        found = model.model_fields[str(name)].annotation if str(name) in model.model_fields else None
        if not (isinstance(found, type) and issubclass(found, BaseModel)):
            return []
        model = found
    return list(model.model_fields)


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
    except Exception as error:
        # The boundary of the process: whatever it was, the run-state file must not go on saying "running".
        _say(job, TrainError(f"{type(error).__name__}: {error}", "The traceback is in the log."))
        raise
    _leave_group()
    return int(code)


def _say(job: TrainJob | None, error: TrainError) -> None:
    """Rank 0 says what all ranks found; another rank, which may be alone with it, leaves it in the log."""
    fields = {"message": str(error), "remedy": error.remedy, "exit_code": int(error.exit_code)}
    if os.environ.get("RANK", "0") != "0":
        sys.stderr.write(json.dumps({"event": "error", **fields}) + "\n")
    elif job is None:
        sys.stdout.write(json.dumps({"event": "error", **fields}) + "\n")
    else:
        job.output_dir.mkdir(parents=True, exist_ok=True)
        EventLog(job.output_dir, enabled=True).emit("error", **fields)
    if job is not None:
        job.output_dir.mkdir(parents=True, exist_ok=True)
        write_run_state(job.output_dir, "failed", None, error.exit_code)


def _leave_group() -> None:
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
