"""A small GPT-2 with large weights, on which every mistake of a mapping shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.inference.gpt_slots import GptSlots
from trainer.models.gpt.hf import from_hf, shape_of_config

VOCAB_SIZE, CONTEXT = 97, 48
torch.set_num_threads(1)  # small tensors: threads that wait for each other only cost time


@pytest.fixture(scope="session")
def reference() -> Any:
    """transformers' own model: random, biases not zero, the second feed-forward matrix large."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=CONTEXT, n_embd=32, n_layer=3, n_head=4, n_inner=80,
        bos_token_id=VOCAB_SIZE - 1, eos_token_id=VOCAB_SIZE - 1, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3)
            if "ln_" in name and name.endswith("weight"):
                parameter.add_(1)
            if "mlp.c_proj" in name or "wte" in name:
                parameter.mul_(5)
    return model


@pytest.fixture(scope="session")
def slots(reference: Any) -> GptSlots:
    """The same weights in our model."""
    shape = shape_of_config(reference.config.to_dict())
    return GptSlots(from_hf(reference.state_dict(), shape), shape)
