"""Random numbers that belong to what they are for, not to who draws them.

Initial weights are drawn from (seed, parameter name), dropout masks from (seed, step, sample, layer, site): every
layout and every resume gives the same numbers, and there is no generator state to save.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


def generator_for(*parts: object) -> torch.Generator:
    """A CPU generator whose seed is a digest of `parts`."""
    digest = hashlib.blake2b("\0".join(str(part) for part in parts).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def normal_parameter(seed: int, name: str, shape: tuple[int, ...], std: float) -> Tensor:
    """The full fp32 tensor of a parameter: normal, mean 0."""
    return torch.empty(shape).normal_(0.0, std, generator=generator_for(seed, "init", name))


@dataclass
class DropoutContext:
    """Which step and which samples a forward pass belongs to. Evaluation has none."""

    seed: int = 0
    step: int = 0
    samples: tuple[int, ...] = ()
    """Global positions of the samples of this micro-batch; empty: no dropout."""


class Dropout:
    """One place where dropout happens."""

    def __init__(self, context: DropoutContext, layer: int, site: str, probability: float, num_shards: int = 1) -> None:
        """`num_shards`: into how many parts the tensor's `shard_dim` is cut over ranks."""
        self._context, self._layer, self._site = context, layer, site
        self._probability, self._num_shards = probability, num_shards

    @property
    def is_active(self) -> bool:
        """Whether this pass drops anything."""
        return self._probability > 0 and bool(self._context.samples)

    def __call__(self, x: Tensor, shard_dim: int | None = None, first: int = 0) -> Tensor:
        """x [batch, ...] with elements dropped and the rest scaled up.

        The mask of each sample is drawn whole; where dimension `shard_dim` of x is one rank's part of a larger one, the
        part from index `first` on is taken.
        """
        if not self.is_active:
            return x
        keep = 1.0 - self._probability
        shape = list(x.shape[1:])
        if shard_dim is not None:
            shape[shard_dim - 1] *= self._num_shards
        context = self._context
        masks = []
        for sample in context.samples:
            generator = generator_for(context.seed, "dropout", context.step, sample, self._layer, self._site)
            masks.append(torch.empty(shape).bernoulli_(keep, generator=generator))
        mask = torch.stack(masks)
        if shard_dim is not None:
            mask = mask.narrow(shard_dim, first, x.shape[shard_dim])
        return x * mask.to(device=x.device, dtype=x.dtype) / keep
