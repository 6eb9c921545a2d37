"""Optimizers by name. A new one is a config class in trainer/config.py, a function here and a line in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainer.config import AdamWConfig


def adamw(parameters: Mapping[str, nn.Parameter], config: AdamWConfig) -> torch.optim.Optimizer:
    """AdamW; matrices are decayed, vectors (biases, LayerNorm) are not. Fused where torch can."""
    matrices = [parameter for parameter in parameters.values() if parameter.dim() >= 2]
    vectors = [parameter for parameter in parameters.values() if parameter.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        fused=True,
    )


OPTIMIZERS: dict[str, Callable[[Mapping[str, nn.Parameter], AdamWConfig], torch.optim.Optimizer]] = {"adamw": adamw}
"""Each keeps its state per parameter as tensors of the parameter's shape, and a step count; checkpoints rely on it."""
