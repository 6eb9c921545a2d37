"""The trainer's side of a conversion: the last checkpoint of a run, and the trainer's own model on its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from tasks.errors import CorruptInputError, UserError
from trainer.checkpoint.folder import MANIFEST_NAME, find_latest, step_folder
from trainer.checkpoint.state import load_full_state
from trainer.config import ModelConfig, TrainJob
from trainer.metrics import TrainError
from trainer.models.gpt.hf import GptShape
from trainer.models.gpt.model import GPT


@dataclass(frozen=True)
class TrainedModel:
    """Weights under the trainer's global names, and the shape they have."""

    shape: GptShape
    state: Mapping[str, Tensor]
    step: int
    """Optimizer steps the checkpoint has seen."""

    def rounded(self, dtype: torch.dtype) -> TrainedModel:
        """The same model with weights as they are after a way through `dtype`, in fp32."""
        return TrainedModel(self.shape, {name: t.to(dtype).float() for name, t in self.state.items()}, self.step)

    def with_weights(self, state: Mapping[str, Tensor], shape: GptShape) -> TrainedModel:
        """A model of the same kind with other weights and sizes."""
        return TrainedModel(shape, state, self.step)

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits [rows, length, vocab_size] of the trainer's own model, in the type of the weights."""
        shape = self.shape
        config = ModelConfig(
            num_layers=shape.num_layers,
            hidden_size=shape.hidden_size,
            ffn_hidden_size=shape.ffn_hidden_size,
            num_attention_heads=shape.num_attention_heads,
            layernorm_epsilon=shape.layernorm_epsilon,
            make_vocab_size_divisible_by=1,
        )
        dtype = self.state["wte.weight"].dtype
        model = GPT(config, vocab_size=shape.vocab_size, num_positions=shape.max_position_embeddings, dtype=dtype)
        unpadded = {**self.state, "wte.weight": self.state["wte.weight"][: shape.vocab_size]}
        model.to(dtype).load_state_dict(unpadded, strict=True)
        with torch.inference_mode():
            logits: Tensor = model.eval()(tokens)
        return logits


def check_only_tensors(folder: Path) -> None:
    """Raises CorruptInputError when the folder holds anything but tensor files and the manifest.

    Pickled files run code when they are opened, so none is ever opened, and a folder that has one is not trusted.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST_NAME and path.suffix != ".safetensors":
            rule = "a checkpoint is safetensors files and a manifest, and pickled files may run code"
            raise CorruptInputError(f"{path} is refused and was not opened: {rule}")


def open_checkpoint(directory: Path, train_path: Path, vocab_size: int) -> TrainedModel:
    """The newest complete checkpoint of a run, verified. No code in it is ever run: its files are safetensors.

    Raises UserError when settings and vocabulary do not fit, CorruptInputError when a file is damaged or refused.
    """
    try:
        job = TrainJob.model_validate_json(train_path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CorruptInputError(f"{train_path}: the settings of the training cannot be read ({error})") from error
    if job.vocab_size != vocab_size:
        rule = f"the checkpoint was trained with {job.vocab_size} token ids"
        raise UserError("vocab_size", vocab_size, rule, "Give the tokenizer that made the training corpus.")
    try:
        step, _ = find_latest(directory)
        if step is None:
            raise CorruptInputError(f"{directory} holds no complete checkpoint; the conversion is refused")
        folder = step_folder(directory, step)
        check_only_tensors(folder)
        state = load_full_state(folder)
    except TrainError as error:
        raise CorruptInputError(f"the checkpoint is refused: {error}") from error
    model = job.train.model
    shape = GptShape(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_attention_heads=model.num_attention_heads,
        ffn_hidden_size=model.ffn_size,
        max_position_embeddings=job.train.num_positions,
        vocab_size=vocab_size,
        layernorm_epsilon=model.layernorm_epsilon,
    )
    return TrainedModel(shape, state, step)
