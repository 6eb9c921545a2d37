"""Architectures by name. A new one is a folder beside `gpt` and a line here."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trainer.config import TrainConfig
from trainer.models.gpt.model import GPT
from trainer.models.gpt.parallelize import build_gpt, shard_dimension
from trainer.parallel.mesh import Mesh

BUILDERS: dict[str, Callable[[TrainConfig, int, Mesh, torch.device], GPT]] = {"gpt": build_gpt}
SHARDINGS: dict[str, Callable[[str], int | None]] = {"gpt": shard_dimension}
