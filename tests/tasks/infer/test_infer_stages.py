"""Sampling and evaluation as stages, in their child processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tasks import adopt
from tasks.errors import UserError
from tasks.infer.config import EvaluateConfig, SampleConfig
from tasks.infer.stage import EVALUATE, SAMPLE
from tasks.progress import SilentProgress
from tasks.store import ArtifactStore
from trainer.data.indexed_dataset import IndexedDatasetBuilder


def test_sample_writes_every_text_with_its_seed(model_directory: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    model = adopt.adopt_hf_model(store, model_directory)
    config = SampleConfig(prompts=("", "ab é", "x" * 100), num_samples_per_prompt=2, max_new_tokens=8, seed=5)
    samples = store.run(SAMPLE, config, [model])
    rows = [json.loads(line) for line in (store.path_of(samples) / "samples.jsonl").read_text().splitlines()]
    assert samples.num_samples == len(rows) == 6
    assert [(row["prompt"], row["seed"]) for row in rows[:4]] == [("", 5), ("", 6), ("ab é", 5), ("ab é", 6)]
    assert all(max(row["token_ids"]) < 257 for row in rows if row["token_ids"])
    assert rows[4]["num_prompt_tokens_dropped"] == 100 - (64 - 8)
    alone = SampleConfig(prompts=("ab é",), num_samples_per_prompt=1, max_new_tokens=8, seed=6)
    one = store.run(SAMPLE, alone, [model])
    assert json.loads((store.path_of(one) / "samples.jsonl").read_text())["token_ids"] == rows[3]["token_ids"]
    report = store.manifest_of(samples).report
    assert report is not None
    assert sum(count for name, count in report.counts.items() if name.startswith("finished_by_")) == 6


def test_evaluate_publishes_what_was_measured(model_directory: Path, tmp_path: Path) -> None:
    with IndexedDatasetBuilder(tmp_path / "corpus", np.uint16) as builder:
        for length in range(10, 60):
            builder.add_document(np.arange(length, dtype=np.uint16))
    store = ArtifactStore(tmp_path / "store")
    corpus = adopt.adopt_corpus(store, tmp_path / "corpus", 257, 256)
    model = adopt.adopt_hf_model(store, model_directory)
    progress = SilentProgress()
    report = store.run(EVALUATE, EvaluateConfig(split="80,20,0", seq_length=32), [model, corpus], progress)
    written = json.loads((store.path_of(report) / "evaluation.json").read_text())
    assert (report.loss, report.num_tokens) == (written["loss"], written["num_tokens"])
    assert report.num_tokens > 100
    assert progress.metrics[0]["perplexity"] == report.perplexity
    foreign = adopt.adopt_corpus(store, tmp_path / "corpus", 300, 256)
    with pytest.raises(UserError, match=r"corpus\.vocab_size = 300: the model has 257 token ids"):
        store.run(EVALUATE, EvaluateConfig(), [model, foreign])
    with pytest.raises(UserError, match=r"seq_length = 100: the model's context is 64 tokens"):
        store.run(EVALUATE, EvaluateConfig(seq_length=100), [model, corpus])


def test_the_parent_never_loads_torch() -> None:
    import subprocess

    code = "import sys, tasks.infer.stage, tasks.infer.sampling, tasks.convert.stage; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
