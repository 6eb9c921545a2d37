"""What the exporting child process is asked to do, and how it is started. Free of torch: the parent imports this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tasks.errors import ChildFailedError, StageError, UserError
from tasks.launch import python_module, run_child

USER_ERROR_EXIT_CODE = 2
REFUSED_EXIT_CODE = 5


class ExportJob(BaseModel):
    """One checkpoint to one Hugging Face directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint_directory: Path
    """The trainer's output directory, with latest.json and step_XXXXXXXX folders."""
    train_path: Path
    """train.json: the settings the checkpoint was trained with."""
    tokenizer_directory: Path
    output_directory: Path
    vocab_size: int
    """Token ids with a meaning; rows of the embedding beyond them are padding and are dropped."""
    eod_token_id: int
    tokenizer_fingerprint: str
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    logit_tolerance: float = 1e-4


def run_export(
    job: ExportJob,
    *,
    job_path: Path,
    log_path: Path,
    on_event: Callable[[dict[str, Any]], None],
    timeout_seconds: float | None,
) -> dict[str, Any]:
    """Run the export in a child process and return its `done` event.

    Raises UserError and StageError as the child found them, ChildFailedError with its last lines when it broke, and
    TimeoutError.
    """
    job_path.parent.mkdir(parents=True, exist_ok=True)
    job_path.write_text(job.model_dump_json(), encoding="utf-8")
    result = run_child(
        python_module("tasks.convert.export", "--job", str(job_path)),
        name="convert",
        log_path=log_path,
        on_event=on_event,
        timeout_seconds=timeout_seconds,
        accepted_exit_codes=(0, USER_ERROR_EXIT_CODE, REFUSED_EXIT_CODE),
    )
    last = result.events[-1] if result.events else {}
    if result.exit_code == USER_ERROR_EXIT_CODE and {"field", "value", "rule", "remedy"} <= last.keys():
        raise UserError(last["field"], last["value"], last["rule"], last["remedy"])
    if result.exit_code == REFUSED_EXIT_CODE and last.get("event") == "error":
        raise StageError(last["message"])
    if result.exit_code or last.get("event") != "done":
        raise ChildFailedError("convert", result.exit_code, result.last_lines)
    return last
