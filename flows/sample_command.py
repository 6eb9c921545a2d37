"""`url2lm sample`: let a model folder write, without flow and server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from flows.config import as_user_error
from tasks.errors import UserError
from tasks.infer.jobs import GenerateJob
from tasks.infer.sampling import sample_directory
from tasks.records import replace_surrogates

console = Console()
error_console = Console(stderr=True)


def sample(
    model: Path, prompts: Sequence[str], file: Path | None, settings: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print each sample as it is finished. Raises UserError for a folder that holds no model and for wrong settings."""
    directory = model.expanduser().resolve()
    if not (directory / "config.json").is_file():
        remedy = "Give the folder that the stage convert made, or any GPT-2 folder."
        raise UserError("model", str(model), "it holds no config.json", remedy)
    given = tuple(prompts) if prompts or file else ("",)
    for prompt in given:
        if replace_surrogates(prompt) != prompt:
            raise UserError("--prompt", ascii(prompt), "it is not UTF-8 text", "Give it in UTF-8, or use --file.")
    try:
        job = GenerateJob(
            model_directory=directory, prompts=given, prompt_file=file.expanduser() if file else None, **settings
        )
    except ValidationError as error:
        raise as_user_error(error, GenerateJob) from error

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            error_console.print(f"[yellow]{escape(str(event['message']))}[/]", highlight=False)
        elif event["event"] == "sample" and as_json:
            console.file.write(orjson.dumps(event).decode() + "\n")
        elif event["event"] == "sample":
            console.rule(f"sample {event['index'] + 1}, seed {event['seed']}", align="left", style="dim")
            console.print(f"[bold]{escape(event['prompt'])}[/]{escape(event['text'])}", highlight=False, soft_wrap=True)

    sample_directory(job, hear)
