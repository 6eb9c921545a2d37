"""A checkpoint as the trainer writes it, with large weights, and a tokenizer of bytes, as artifacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from tasks.artifacts import Checkpoint, Tokenizer
from tasks.configuration import StageConfig
from tasks.stages import Stage
from tasks.store import ArtifactStore, StageBuild
from trainer.checkpoint.state import save
from trainer.config import ModelConfig, TrainConfig, TrainJob
from trainer.models.gpt.model import GPT
from trainer.models.gpt.parallelize import shard_dimension
from trainer.parallel.mesh import single_mesh

VOCAB_SIZE, EOD = 257, 256
torch.set_num_threads(1)  # small tensors: threads that wait for each other only cost time


class MadeConfig(StageConfig):
    """What the test artifacts are made of."""

    tokenizer_fingerprint: str = ""
    """Of the corpus the checkpoint claims to be trained on."""
    weight_scale: float = 0.3
    """Standard deviation of the weights."""
    eod_token_id: int = EOD
    """The id that ends a document."""


def make_model(scale: float = 0.3) -> tuple[TrainConfig, GPT]:
    config = ModelConfig(num_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=80)
    train = TrainConfig(model=config, seq_length=24, num_steps=3)
    model = GPT(config, vocab_size=VOCAB_SIZE, num_positions=24)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            if "ln_" in name and name.endswith("weight"):
                parameter.add_(1)
        model.wte.weight[VOCAB_SIZE:] = 1e4  # padding that must not get out
    return train, model


def make_checkpoint(build: StageBuild, config: MadeConfig) -> Checkpoint:
    train, model = make_model(config.weight_scale)
    output = build.directory / "checkpoint"
    optimizer = torch.optim.AdamW(model.parameters())
    save(
        output, 3, dict(model.named_parameters()), optimizer, single_mesh(), shard_dimension,
        vocab_size=VOCAB_SIZE, keep=1, facts={"num_updates": 3},
    )  # fmt: skip
    job = TrainJob(
        train=train,
        corpus_prefix=Path("corpus"),
        vocab_size=VOCAB_SIZE,
        eod_token_id=EOD,
        output_dir=Path("checkpoint"),
    )
    (build.directory / "train.json").write_text(job.model_dump_json())
    return build.publish(
        Checkpoint, None, num_steps=3, num_parameters=train.model.num_parameters(VOCAB_SIZE, 24), vocab_size=VOCAB_SIZE,
        eod_token_id=config.eod_token_id, tokenizer_fingerprint=config.tokenizer_fingerprint, first_loss=2.0,
        last_loss=1.0, validation_loss=None,
    )  # fmt: skip


def make_tokenizer(build: StageBuild, config: MadeConfig) -> Tokenizer:
    del config
    write_tokenizer(build.directory)
    return build.publish(Tokenizer, None, vocab_size=VOCAB_SIZE, eod_token_id=EOD)


def write_tokenizer(directory: Path) -> None:
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(directory / "tokenizer.json"))


CHECKPOINT: Stage[Any] = Stage("train", 1, MadeConfig, (), Checkpoint, make_checkpoint, "made for a test")
TOKENIZER: Stage[Any] = Stage("vocabulary", 1, MadeConfig, (), Tokenizer, make_tokenizer, "made for a test")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[ArtifactStore, Checkpoint, Tokenizer]]:
    """A store with a checkpoint and a tokenizer; settings of the checkpoint by name."""

    def made(**fields: Any) -> tuple[ArtifactStore, Checkpoint, Tokenizer]:
        store = ArtifactStore(tmp_path / "store")
        return store, store.run(CHECKPOINT, MadeConfig(**fields), ()), store.run(TOKENIZER, MadeConfig(), ())

    return made


@pytest.fixture
def trainer_model() -> Callable[..., GPT]:
    """The model whose weights the checkpoint holds."""
    return lambda **fields: make_model(**fields)[1].eval()
