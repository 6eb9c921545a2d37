"""Large random weights through the same mapping: what small trained weights would hide.

With N(0, 0.02) weights the wrong GELU moves logits by 1e-8, and biases that start at zero hide a permuted bias. The
probe has the trained model's widths and heads, non-zero biases, feed-forward inputs where the two GELUs differ most,
and a feed-forward output that dominates. It is compared in fp64, so that any real difference stands far above rounding.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tasks.convert.gate import Difference, difference, probe_tokens
from tasks.convert.trained import TrainedModel
from trainer.models.gpt.hf import GptShape, entries, from_hf, hf_config

PROBE_LAYERS = 2
PROBE_VOCAB_SIZE = 512
PROBE_POSITIONS = 32


def probe_weights(shape: GptShape, seed: int = 0) -> dict[str, Tensor]:
    """Weights in transformers' names and layouts, fp64, from one generator in the order of the names."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for entry in sorted(entries(shape), key=lambda entry: entry.theirs):
        tensor = torch.randn(entry.shape, generator=generator, dtype=torch.float64)
        name = entry.theirs.rsplit(".", 2)
        if name[-2].startswith("ln_"):
            tensor = tensor * 0.3 + (1.0 if name[-1] == "weight" else 0.0)
        elif name[-1] == "bias":
            tensor = tensor * 0.5
        elif entry.theirs.endswith("mlp.c_proj.weight"):
            tensor = tensor * 10 / shape.ffn_hidden_size**0.5
        elif "wte" not in name and "wpe" not in name:
            # Inputs of size 1 give outputs of size 1.5, where the tanh formula is furthest from erf.
            tensor = tensor * 1.5 / shape.hidden_size**0.5
        weights[entry.theirs] = tensor
    return weights


def large_weight_difference(trained: TrainedModel) -> Difference:
    """How far transformers and the trainer's model are apart on the probe, fp64."""
    whole = trained.shape
    shape = replace(
        whole,
        num_layers=min(whole.num_layers, PROBE_LAYERS),
        vocab_size=min(whole.vocab_size, PROBE_VOCAB_SIZE),
        max_position_embeddings=min(whole.max_position_embeddings, PROBE_POSITIONS),
    )
    weights = probe_weights(shape)
    transformers: Any = importlib.import_module("transformers")
    reference = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(hf_config(shape, 0, "float32")))
    reference = reference.double().eval()
    reference.load_state_dict({**weights, "lm_head.weight": weights["transformer.wte.weight"]}, strict=True)
    tokens = probe_tokens(shape.vocab_size, shape.max_position_embeddings)
    with torch.inference_mode():
        theirs: Tensor = reference(tokens).logits
    return difference(trained.with_weights(from_hf(weights, shape), shape).logits(tokens), theirs)
