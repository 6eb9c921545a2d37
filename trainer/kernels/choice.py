"""Which way the model's operations run on a device: torch's own one by one, compiled, or our kernels."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

import torch

KernelsName = Literal["auto", "reference", "compile", "triton"]


@dataclass(frozen=True)
class Kernels:
    """What is used."""

    compile_blocks: bool = False
    """Each block goes through torch.compile, which fuses what stands between the products."""
    triton_loss: bool = False
    """The loss goes through `trainer.kernels.cross_entropy`."""


def choose_kernels(name: KernelsName, device: torch.device) -> Kernels:
    """`auto` takes all of them on a GPU where Triton is installed, and none elsewhere."""
    if name == "auto":
        name = "triton" if device.type == "cuda" and importlib.util.find_spec("triton") else "reference"
        return Kernels(compile_blocks=name == "triton", triton_loss=name == "triton")
    return Kernels(compile_blocks=name == "compile", triton_loss=name == "triton")


def use_repeatable_code() -> None:
    """Compiled code must not depend on what a timing on this GPU found best: the order of sums would, and the loss.

    torch before 2.10 has no such switch; there, two compilations may round differently.
    """
    from torch._inductor import config

    if hasattr(config, "deterministic"):
        config.deterministic = True
