"""A tiny model and tiny data for the tests of the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config import TrainConfig, TrainJob
from trainer.data.indexed_dataset import IndexedDatasetBuilder

VOCAB_SIZE = 61
EOD = 60


def tiny_train(**changes: Any) -> TrainConfig:
    """Two layers... four with a pipeline; dropout on; odd vocabulary, so that padding has something to break."""
    settings: dict[str, Any] = {
        "model": {
            "num_layers": 4,
            "hidden_size": 16,
            "num_attention_heads": 4,
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
            "make_vocab_size_divisible_by": 8,
        },
        "optimizer": {"learning_rate": 1e-2},
        "seq_length": 12,
        "micro_batch_size": 2,
        "global_batch_size": 8,
        "num_steps": 6,
        "save_interval": 0,
        "eval_interval": 0,
        "eval_steps": 2,
        "keep_last": 5,
        "split": "90,10,0",
        "resources": {"device": "cpu", "threads_per_process": 1, "collective_timeout_seconds": 60},
    }
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            settings[name] = settings[name] | value
        else:
            settings[name] = value
    return TrainConfig.model_validate(settings)


class TinySamples:
    """Samples by number, drawn from a seed."""

    def __init__(self, number: int = 64, seq_length: int = 12) -> None:
        self._rows = np.random.default_rng(3).integers(0, VOCAB_SIZE, (number, seq_length + 1), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        row: npt.NDArray[np.int64] = self._rows[index]
        return row


def write_corpus(prefix: Path, num_documents: int = 60) -> Path:
    """A corpus with a pattern that can be learned: counting, in documents of random length."""
    draw = np.random.default_rng(11)
    with IndexedDatasetBuilder(prefix, np.uint16) as builder:
        for _ in range(num_documents):
            start, length = int(draw.integers(0, EOD)), int(draw.integers(10, 40))
            builder.add_document(np.append((start + np.arange(length)) % EOD, EOD))
    return prefix


def tiny_job(folder: Path, train: TrainConfig | None = None) -> TrainJob:
    """A job on the counting corpus; the output folder is FOLDER/out."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / "corpus"
    if not prefix.with_suffix(".idx").exists():
        write_corpus(prefix)
    return TrainJob(
        train=train or tiny_train(),
        corpus_prefix=prefix,
        vocab_size=VOCAB_SIZE,
        eod_token_id=EOD,
        output_dir=folder / "out",
        index_cache_dir=folder / "index",
    )
