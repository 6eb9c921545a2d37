"""What the child process is asked to do, as JSON, and how it is started. Free of torch: the parent imports this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.errors import ChildFailedError, UserError
from tasks.infer.config import EvaluateConfig, InferResources
from tasks.launch import python_module, run_child
from trainer.inference.config import SamplingConfig

USER_ERROR_EXIT_CODE = 2


class GenerateJob(SamplingConfig):
    """Texts from a Hugging Face GPT-2 directory."""

    do: Literal["sample"] = "sample"
    """What kind of job this is."""
    model_directory: Path
    """The directory with config.json, model.safetensors and tokenizer.json."""
    prompts: tuple[str | None, ...] = ("",)
    """Beginnings to continue; an empty one, or none, starts a new document."""
    prompt_file: Path | None = None
    """A UTF-8 file with one more prompt a line; every line is answered, blank ones as empty prompts."""
    num_samples_per_prompt: int = Field(default=1, ge=1)
    """Texts for each prompt, with consecutive seeds."""
    stream: bool = False
    """Report pieces of text as they become certain."""
    output_path: Path | None = None
    """Where samples.jsonl is written; none reports events alone."""
    resources: InferResources = InferResources()
    """Device and limits."""


class EvaluateJob(BaseModel):
    """Perplexity of a Hugging Face GPT-2 directory on a .bin/.idx corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: Literal["evaluate"] = "evaluate"
    model_directory: Path
    corpus_prefix: Path
    eod_token_id: int
    config: EvaluateConfig
    output_path: Path
    cache_directory: Path


def run_job(
    job: GenerateJob | EvaluateJob,
    *,
    job_path: Path,
    log_path: Path,
    on_event: Callable[[dict[str, Any]], None],
    timeout_seconds: float | None,
) -> dict[str, Any]:
    """Run the job in a child process and return its `done` event.

    Raises UserError as the child found it, ChildFailedError with its last lines when it broke, and TimeoutError.
    """
    job_path.parent.mkdir(parents=True, exist_ok=True)
    job_path.write_text(job.model_dump_json(), encoding="utf-8")
    result = run_child(
        python_module("tasks.infer.worker", "--job", str(job_path)),
        name=job.do,
        log_path=log_path,
        on_event=on_event,
        timeout_seconds=timeout_seconds,
        accepted_exit_codes=(0, USER_ERROR_EXIT_CODE),
    )
    last = result.events[-1] if result.events else {}
    if result.exit_code == USER_ERROR_EXIT_CODE and {"field", "value", "rule", "remedy"} <= last.keys():
        raise UserError(last["field"], last["value"], last["rule"], last["remedy"])
    if result.exit_code or last.get("event") != "done":
        raise ChildFailedError(job.do, result.exit_code, result.last_lines)
    return last
