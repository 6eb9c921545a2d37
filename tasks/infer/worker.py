"""The child process of sampling and evaluation: `python -m tasks.infer.worker --job job.json`.

Prints one JSON event a line: token, sample, evaluation, warning, and at the end done, or error with exit code 2 when
the user asked for something wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from tasks.errors import UserError
from tasks.infer.jobs import USER_ERROR_EXIT_CODE, EvaluateJob, GenerateJob

Job = Annotated[GenerateJob | EvaluateJob, Field(discriminator="do")]


def emit(event: dict[str, Any]) -> None:
    """One event line on standard output."""
    sys.stdout.write(json.dumps(event, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def run(job: GenerateJob | EvaluateJob) -> int:
    """Do the job. Returns the exit code: 0, or 2 after an error event for the user."""
    try:
        if isinstance(job, GenerateJob):
            from tasks.infer.generation import generate_texts

            generate_texts(job, emit)
        else:
            from tasks.infer.perplexity import evaluate_corpus

            evaluate_corpus(job, emit)
    except UserError as error:
        emit(
            {
                "event": "error",
                "message": str(error),
                "field": error.field,
                "value": error.value if isinstance(error.value, (str, int, float)) else repr(error.value),
                "rule": error.rule,
                "remedy": error.remedy,
            }
        )
        return USER_ERROR_EXIT_CODE
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the job file and do it."""
    parser = argparse.ArgumentParser(description="Sampling and evaluation, one job in one process.")
    parser.add_argument("--job", type=Path, required=True, help="JSON file of the job")
    path: Path = parser.parse_args(arguments).job
    job: GenerateJob | EvaluateJob = TypeAdapter(Job).validate_json(path.read_bytes())
    return run(job)


if __name__ == "__main__":
    sys.exit(main())
