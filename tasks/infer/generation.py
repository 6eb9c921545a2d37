"""Texts from a Hugging Face GPT-2 directory. Runs in the child process: this module loads torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.errors import CorruptInputError, UserError
from tasks.infer.jobs import GenerateJob
from tasks.infer.token_bytes import load_tokenizer, token_bytes
from tasks.records import replace_surrogates
from trainer.inference.config import MAX_SEED, SamplingConfig
from trainer.inference.engine import DecodeEngine, Request
from trainer.inference.loading import choose_device, load_gpt_directory

Emit = Callable[[dict[str, Any]], None]


def read_prompts(job: GenerateJob) -> list[str]:
    """The prompts of the job, then those of its file: one a line, the last line with or without an end.

    Raises UserError for a file that is missing or not UTF-8.
    """
    prompts = [prompt or "" for prompt in job.prompts]
    if job.prompt_file is not None:
        try:
            text = job.prompt_file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            rule = f"it cannot be read as UTF-8 text ({error})"
            raise UserError(
                "prompt_file", str(job.prompt_file), rule, "Give a text file with one prompt a line."
            ) from error
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        prompts.extend(line.removesuffix("\r") for line in lines)
    if not prompts:
        raise UserError("prompts", [], "there is nothing to continue", 'Give --prompt TEXT; "" starts a new document.')
    return [replace_surrogates(prompt) for prompt in prompts]


def generate_texts(job: GenerateJob, emit: Emit) -> None:
    """Write `num_samples_per_prompt` texts for every prompt and report each as a `sample` event, then `done`.

    With `job.output_path` the samples are also written there, one JSON object a line, in the order of the prompts.
    Raises UserError for a model or tokenizer that cannot be used.
    """
    prompts = read_prompts(job)
    try:
        loaded = load_gpt_directory(job.model_directory, choose_device(job.resources.device))
    except (ValueError, OSError) as error:
        remedy = "Give a GPT-2 directory with config.json and safetensors."
        raise UserError("model", str(job.model_directory), str(error), remedy) from error
    tokenizer = load_tokenizer(job.model_directory)
    vocabulary = token_bytes(tokenizer, loaded.model.vocab_size)
    for token in job.logit_bias:
        if not 0 <= token < loaded.model.vocab_size:
            rule = f"the vocabulary ends at {loaded.model.vocab_size - 1}"
            raise UserError("logit_bias", token, rule, "Bias only ids of the vocabulary.")
    if job.max_new_tokens >= loaded.model.context_size:
        rule = f"the model's context is {loaded.model.context_size} tokens, and one of them is the prompt's"
        emit({"event": "warning", "message": f"max_new_tokens = {job.max_new_tokens}: {rule}; texts end there"})
    engine = DecodeEngine(loaded.model, loaded.eod_token_id, vocabulary)
    requests, origins = [], []
    for prompt_index, prompt in enumerate(prompts):
        ids = tuple(tokenizer.encode(prompt, add_special_tokens=False).ids)
        for sample_index in range(job.num_samples_per_prompt):
            requests.append(Request(ids, _with_seed(job, sample_index)))
            origins.append((prompt_index, sample_index))

    def say(index: int, piece: str) -> None:
        emit({"event": "token", "index": index, "text": piece})

    try:
        completions = engine.generate(requests, say if job.stream else None)
    except ValueError as error:
        raise CorruptInputError(f"{job.model_directory}: {error}") from error
    rows = []
    for index, ((prompt_index, sample_index), completion) in enumerate(zip(origins, completions, strict=True)):
        row = {
            "prompt": prompts[prompt_index],
            "text": completion.text,
            "seed": completion.seed,
            "token_ids": list(completion.token_ids),
            "finish_reason": str(completion.finish_reason),
            "prompt_index": prompt_index,
            "sample_index": sample_index,
            "num_prompt_tokens": completion.num_prompt_tokens,
            "num_prompt_tokens_dropped": completion.num_prompt_tokens_dropped,
        }
        rows.append(row)
        emit({"event": "sample", "index": index, **row})
    if job.output_path is not None:
        write_rows(job.output_path, rows)
    num_tokens = sum(len(completion.token_ids) for completion in completions)
    emit({"event": "done", "num_samples": len(rows), "num_tokens": num_tokens})


def _with_seed(job: GenerateJob, sample_index: int) -> SamplingConfig:
    fields = {name: getattr(job, name) for name in SamplingConfig.model_fields}
    return SamplingConfig(**(fields | {"seed": (job.seed + sample_index) & MAX_SEED}))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """JSON lines, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
