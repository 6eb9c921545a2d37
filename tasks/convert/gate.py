"""The gate of an export: what must hold before a directory is published. Runs in the child process.

Weights that load under the wrong name leave a model with fresh random weights and no error (huggingface/transformers
issue 39048), a square matrix that was not transposed loads silently, and the exact and the tanh GELU differ by 1e-8 on
small weights. So the directory is loaded as a user would load it, every name is compared, and logits are compared
both on the trained weights and on large random ones that went through the same mapping.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.errors import StageError
from trainer.inference.loading import read_config, weight_names
from trainer.models.gpt.hf import entries, shape_of_config

PROBE_TEXT = "Hello, world! It's 1 + 1 = 2\n  \u00fcber \u65e5\u672c \U0001f600"


@dataclass(frozen=True)
class Difference:
    """How far two sets of logits are apart."""

    largest: float
    """Largest absolute difference."""
    scale: float
    """Largest absolute logit, or 1 when that is smaller."""

    def check(self, tolerance: float, what: str) -> None:
        """Raises StageError when the difference is more than `tolerance` times the scale, or not a number."""
        if not self.largest <= tolerance * self.scale:
            raise StageError(
                f"{what}: transformers' logits differ from the trainer's by {self.largest:.3g} "
                f"(logits up to {self.scale:.3g}, tolerance {tolerance:g}); nothing is published"
            )


def difference(ours: Tensor, theirs: Tensor) -> Difference:
    """Compare logits of the same shape. Raises StageError for another shape."""
    if ours.shape != theirs.shape:
        raise StageError(
            f"logits have the shape {tuple(theirs.shape)} in transformers and {tuple(ours.shape)} in the trainer"
        )
    return Difference(float((ours.double() - theirs.double()).abs().max()), max(1.0, float(ours.abs().max())))


def load_in_transformers(directory: Path) -> Any:
    """The directory as a user would load it (GPT2LMHeadModel, fp32, evaluation mode).

    Raises StageError, listing the names, when a weight is missing, unexpected or of another shape.
    """
    transformers: Any = importlib.import_module("transformers")
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model, info = load(directory, output_loading_info=True, dtype=torch.float32)
    found, wanted = (
        weight_names(directory),
        {entry.theirs for entry in entries(shape_of_config(read_config(directory)))},
    )
    wrong = {
        # Also by our own list: transformers passes over every unexpected name that ends in attn.bias, c_attn.bias too.
        "missing": sorted(set(info["missing_keys"]) | (wanted - found)),
        "unexpected": sorted(set(info["unexpected_keys"]) | (found - wanted)),
        "of another shape": sorted(str(item) for item in info["mismatched_keys"]),
        "broken": sorted(str(item) for item in info["error_msgs"]),
    }
    if any(wrong.values()):
        lists = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in wrong.items() if names)
        raise StageError(f"{directory}: the weights do not load; {lists}")
    if not isinstance(model, transformers.GPT2LMHeadModel):
        raise StageError(f"{directory}: transformers loads it as {type(model).__name__}, not GPT2LMHeadModel")
    if model.lm_head.weight.data_ptr() != model.transformer.wte.weight.data_ptr():
        raise StageError(f"{directory}: the output head and the token embedding are not the same tensor after loading")
    return model.eval()


def probe_tokens(vocab_size: int, num_positions: int, num_rows: int = 2) -> Tensor:
    """Token ids int64 [num_rows, num_positions] that touch the whole vocabulary, its last id included."""
    flat = torch.arange(num_rows * num_positions, dtype=torch.int64)
    ids = (flat * 7919 + 13) % vocab_size
    ids[-1] = vocab_size - 1
    return ids.reshape(num_rows, num_positions)


def check_tokenizer(directory: Path, vocab_size: int, eod_token_id: int) -> None:
    """The tokenizer of the directory loads in transformers and speaks of the same ids. Raises StageError otherwise."""
    import tokenizers

    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    if len(tokenizer) != vocab_size:
        raise StageError(f"{directory}: the tokenizer has {len(tokenizer)} ids, the model {vocab_size}")
    if tokenizer.eos_token_id != eod_token_id:
        ends = f"the tokenizer ends a text with id {tokenizer.eos_token_id}, the model with {eod_token_id}"
        raise StageError(f"{directory}: {ends}")
    plain = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    ids, wanted = tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"], plain.encode(PROBE_TEXT).ids
    if ids != wanted:
        raise StageError(f"{directory}: transformers tokenizes {PROBE_TEXT!r} as {ids}, tokenizer.json as {wanted}")
