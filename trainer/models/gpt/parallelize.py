"""How GPT-2 is shared between ranks: dimensions of parameters, layers of stages, and initial values."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from trainer.config import TrainConfig
from trainer.kernels.choice import choose_kernels
from trainer.models.gpt.model import GPT, Part
from trainer.models.randomness import normal_parameter
from trainer.parallel.mesh import Mesh
from trainer.parallel.tensor import TensorParallel

# Dimension of the global tensor that is cut over the tensor ranks; parameters that are not here are whole on all.
SHARD_DIMENSIONS = (
    (r"wte\.weight", 0),
    (r"h\.\d+\.attn\.qkv\.(weight|bias)", 0),
    (r"h\.\d+\.attn\.proj\.weight", 1),
    (r"h\.\d+\.mlp\.up\.(weight|bias)", 0),
    (r"h\.\d+\.mlp\.down\.weight", 1),
)


def shard_dimension(name: str) -> int | None:
    """The dimension over which the parameter is cut, or None for one that every tensor rank holds whole."""
    return next((dim for pattern, dim in SHARD_DIMENSIONS if re.fullmatch(pattern, name)), None)


def stage_part(num_layers: int, num_stages: int, stage: int) -> Part:
    """Equal shares of the layers, in order."""
    share = num_layers // num_stages
    return Part(stage * share, share, is_first=stage == 0, is_last=stage == num_stages - 1)


def build_gpt(train: TrainConfig, vocab_size: int, mesh: Mesh, device: torch.device) -> GPT:
    """This rank's part of the model on `device`, with initial values."""
    part = stage_part(train.model.num_layers, train.parallel.pipeline_parallel_size, mesh.pp_rank)
    model = GPT(
        train.model,
        vocab_size=vocab_size,
        num_positions=train.num_positions,
        dtype=torch.bfloat16 if train.precision == "bf16" else torch.float32,
        part=part,
        tp=TensorParallel.of(mesh),
    )
    initialise(model, train.seed)
    model.context.seed = train.seed
    model.to(device).use(choose_kernels(train.resources.kernels, device))
    return model


def initialise(model: GPT, seed: int) -> None:
    """Normal weights by (seed, name), zero biases, LayerNorm 1 and 0. Padding rows of the vocabulary are zero.

    The full tensor is drawn and this rank's slice kept, so that every layout starts from the same model.
    """
    config = model.config
    residual_std = config.init_std / math.sqrt(2 * config.num_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"ln_[12f]\.weight$", name):
                parameter.fill_(1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                dim = shard_dimension(name)
                shape = list(parameter.shape)
                if dim is not None:
                    shape[dim] *= model.tp.size
                if name == "wte.weight":
                    shape[0] = model.vocab_size
                std = residual_std if name.endswith(("attn.proj.weight", "mlp.down.weight")) else config.init_std
                full = normal_parameter(seed, name, tuple(shape), std)
                if name == "wte.weight":
                    full = torch.cat([full, full.new_zeros(model.padded_vocab_size - model.vocab_size, shape[1])])
                parameter.copy_(local_slice(full, dim, model.tp.rank, model.tp.size))


def local_slice(full: Tensor, dim: int | None, rank: int, size: int) -> Tensor:
    """This rank's part of a global tensor."""
    return full if dim is None or size == 1 else full.chunk(size, dim)[rank]
