"""Sampling as the command does it: events, streams, prompt files, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.errors import UserError
from tasks.infer.generation import generate_texts, read_prompts
from tasks.infer.jobs import GenerateJob
from tasks.infer.sampling import sample_directory


def events_of(job: GenerateJob) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    generate_texts(job, events.append)
    return events


def test_the_stream_joins_to_the_samples_in_a_child_process(model_directory: Path) -> None:
    events: list[dict[str, Any]] = []
    job = GenerateJob(
        model_directory=model_directory, prompts=("é", "b"), num_samples_per_prompt=2, max_new_tokens=20, stream=True
    )
    done = sample_directory(job, events.append)
    samples = [event for event in events if event["event"] == "sample"]
    assert done["num_samples"] == len(samples) == 4
    for sample in samples:
        pieces = [event["text"] for event in events if event["event"] == "token" and event["index"] == sample["index"]]
        assert "".join(pieces) == sample["text"]
        assert all("�" not in piece or piece in sample["text"] for piece in pieces)


def test_every_line_of_a_file_is_answered_the_last_too(model_directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("\ufeffone\r\nnever stop\n\nlast without an end".encode())
    job = GenerateJob(model_directory=model_directory, prompts=(), prompt_file=path, max_new_tokens=2)
    assert read_prompts(job) == ["one", "never stop", "", "last without an end"]
    samples = [event for event in events_of(job) if event["event"] == "sample"]
    assert [sample["prompt"] for sample in samples] == ["one", "never stop", "", "last without an end"]


def test_no_prompt_is_an_empty_one(model_directory: Path) -> None:
    jobs = [GenerateJob(model_directory=model_directory, prompts=(prompt,), max_new_tokens=4) for prompt in (None, "")]
    first, second = ([event for event in events_of(job) if event["event"] == "sample"] for job in jobs)
    assert first == second


def test_half_a_surrogate_pair_in_a_prompt_is_replaced(model_directory: Path) -> None:
    job = GenerateJob.model_construct(model_directory=model_directory, prompts=("a\ud83d",), prompt_file=None)
    assert read_prompts(job) == ["a�"]


def test_wrong_requests_are_refused(model_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="temperature"):
        GenerateJob(model_directory=model_directory, temperature=-1)
    with pytest.raises(UserError, match="there is nothing to continue"):
        events_of(GenerateJob(model_directory=model_directory, prompts=()))
    with pytest.raises(UserError, match="cannot be read as UTF-8 text"):
        events_of(GenerateJob(model_directory=model_directory, prompt_file=tmp_path / "none.txt"))
    with pytest.raises(UserError, match=r"logit_bias = 257: the vocabulary ends at 256"):
        events_of(GenerateJob(model_directory=model_directory, logit_bias={257: 1.0}))
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        sample_directory(GenerateJob(model_directory=tmp_path), lambda event: None)


def test_pickled_weights_are_not_read(model_directory: Path, tmp_path: Path) -> None:
    for path in model_directory.iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")
    with pytest.raises(UserError, match="pickled weights are not read"):
        events_of(GenerateJob(model_directory=tmp_path))
