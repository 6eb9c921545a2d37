"""Perplexity against transformers, to the token and to the byte."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.errors import StageError, UserError
from tasks.infer.config import EvaluateConfig
from tasks.infer.jobs import EvaluateJob
from tasks.infer.perplexity import LossSums, evaluate_corpus, token_losses
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

EOD = 256


def write_corpus(folder: Path, num_documents: int = 40) -> Path:
    generator = np.random.default_rng(0)
    with IndexedDatasetBuilder(folder / "corpus", np.uint16) as builder:
        for _ in range(num_documents):
            tokens = generator.integers(0, 256, generator.integers(5, 60))
            builder.add_document(np.append(tokens, EOD).astype(np.uint16))
    return folder / "corpus"


def measure(model: Path, corpus: Path, folder: Path, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    job = EvaluateJob(
        model_directory=model,
        corpus_prefix=corpus,
        eod_token_id=EOD,
        config=EvaluateConfig(**({"split": "70,30,0", "seq_length": 16, "batch_size": 4} | fields)),
        output_path=folder / "evaluation.json",
        cache_directory=folder / "cache",
    )
    evaluate_corpus(job, events.append)
    return json.loads(job.output_path.read_text()), events


def test_loss_perplexity_and_bits_are_those_of_transformers(model_directory: Path, tmp_path: Path) -> None:
    import transformers

    corpus = write_corpus(tmp_path)
    got, events = measure(model_directory, corpus, tmp_path)
    reference = transformers.GPT2LMHeadModel.from_pretrained(model_directory, dtype=torch.float64).eval()
    samples = GPTDataset(
        IndexedDataset(corpus),
        split="valid",
        split_weights="70,30,0",
        seq_length=16,
        num_samples=None,
        seed=1234,
        cache_dir=None,
    )
    nats, num_tokens, num_bytes = 0.0, 0, 0
    for index in range(len(samples)):
        tokens = torch.from_numpy(samples[index])
        with torch.no_grad():
            logits = reference(tokens[None, :-1]).logits[0]
        nats += -logits.log_softmax(-1).gather(-1, tokens[1:, None]).sum().item()
        num_tokens += 16
        num_bytes += int((tokens[1:] != EOD).sum())  # one byte a token, none for the end marker
    assert len(samples) > 10
    assert got["num_tokens"] == num_tokens
    assert got["num_bytes"] == num_bytes
    assert got["loss"] == pytest.approx(nats / num_tokens, abs=1e-5)
    assert got["perplexity"] == pytest.approx(math.exp(nats / num_tokens), rel=1e-5)
    assert got["bits_per_byte"] == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-5)
    assert [event["event"] for event in events][-2:] == ["evaluation", "done"]


def test_the_batch_size_changes_nothing_that_matters(model_directory: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    losses = [measure(model_directory, corpus, tmp_path, batch_size=size)[0]["loss"] for size in (1, 3, 8)]
    assert max(losses) - min(losses) < 1e-6


def test_max_samples(model_directory: Path, tmp_path: Path) -> None:
    assert measure(model_directory, write_corpus(tmp_path), tmp_path, max_samples=5)[0]["num_tokens"] == 5 * 16


@pytest.mark.filterwarnings("ignore")
def test_an_empty_part_is_said_and_replaced(model_directory: Path, tmp_path: Path) -> None:
    got, events = measure(model_directory, write_corpus(tmp_path), tmp_path, split="1,0,0")
    assert got["part"] == "train"
    assert any("holds no whole sample of 16 tokens" in event.get("message", "") for event in events)


def test_what_cannot_be_measured_is_refused(model_directory: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    with pytest.raises(UserError, match=r"seq_length = 65: the model's context is 64 tokens"):
        measure(model_directory, corpus, tmp_path, seq_length=65)
    with pytest.raises(UserError, match="split = 'a,b,c'"):
        measure(model_directory, corpus, tmp_path, split="a,b,c")
    with pytest.raises(UserError, match="holds no config.json|config.json cannot be read"):
        measure(tmp_path, corpus, tmp_path)
    with IndexedDatasetBuilder(tmp_path / "large", np.uint16) as builder:
        builder.add_document(np.full(100, 300, dtype=np.uint16))
    with pytest.raises(UserError, match="the model's vocabulary ends at 256"):
        measure(model_directory, tmp_path / "large", tmp_path, split="1,0,0", part="train")


def test_perplexity_has_no_cap() -> None:
    assert LossSums(nats=300.0, num_tokens=10, num_bytes=7).perplexity == pytest.approx(math.exp(30))
    for nats in (float("nan"), float("inf"), 1e6):
        with pytest.raises(StageError, match="the weights are damaged"):
            _ = LossSums(nats=nats, num_tokens=1, num_bytes=1).perplexity


def test_token_losses_of_half_precision_are_summed_exactly() -> None:
    logits = torch.zeros(3, 4, dtype=torch.bfloat16)
    losses = token_losses(logits, torch.tensor([0, 1, 2]))
    assert losses.dtype == torch.float64
    assert losses.tolist() == pytest.approx([math.log(4)] * 3)
