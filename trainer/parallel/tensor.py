"""Tensor parallelism on plain tensors: the conjugate collectives and the two losses of information they prevent.

f: identity forward, all-reduce backward (before a column-parallel product); g: all-reduce forward, identity backward
(after a row-parallel product). Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.mesh import Group, Mesh, all_reduce


@dataclass(frozen=True)
class TensorParallel:
    """This rank's share of every layer."""

    group: Group = None
    rank: int = 0
    size: int = 1

    @classmethod
    def of(cls, mesh: Mesh) -> TensorParallel:
        """The tensor direction of a mesh."""
        return cls(mesh.tp_group, mesh.tp_rank, mesh.parallel.tensor_parallel_size)

    def enter(self, x: Tensor) -> Tensor:
        """f, before a column-parallel product."""
        return x if self.group is None else _Enter.apply(x, self.group)

    def leave(self, x: Tensor) -> Tensor:
        """g, after a row-parallel product."""
        return x if self.group is None else _Leave.apply(x, self.group)


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return all_reduce(grads[0].contiguous(), ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return all_reduce(x.contiguous(), group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def embed(tokens: Tensor, weight: Tensor, tp: TensorParallel) -> Tensor:
    """Rows of a vocabulary-parallel embedding: tokens int64 [...], weight [padded vocabulary / size, h] -> [..., h].

    Each rank looks up its own rows and gives zeros for the rest; the sum over ranks is the embedding.
    """
    if tp.size == 1:
        return torch.nn.functional.embedding(tokens, weight)
    rows = weight.shape[0]
    local = tokens - tp.rank * rows
    foreign = (local < 0) | (local >= rows)
    found = torch.nn.functional.embedding(local.masked_fill(foreign, 0), weight)
    return tp.leave(found.masked_fill(foreign.unsqueeze(-1), 0.0))


def cross_entropy(logits: Tensor, labels: Tensor, vocab_size: int, tp: TensorParallel) -> Tensor:
    """Loss of each token in nats: logits [..., padded vocabulary / size], labels int64 [...] -> float32 [...].

    Columns from `vocab_size` on are padding and take no part, so that the loss does not depend on the padding. `logits`
    must not be used afterwards. Two collectives: a maximum, and one sum that carries both terms.
    """
    loss: Tensor = _CrossEntropy.apply(logits, labels, vocab_size, tp)
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab_size: int, tp: TensorParallel) -> Tensor:
        columns = logits.shape[-1]
        first = tp.rank * columns
        z = logits.float()
        if first + columns > vocab_size:
            z = z.clone() if z.data_ptr() == logits.data_ptr() else z
            z[..., max(0, vocab_size - first) :] = float("-inf")
        top = z.max(dim=-1).values
        if tp.group is not None:
            dist.all_reduce(top, op=dist.ReduceOp.MAX, group=tp.group)
        exponentials = torch.exp(z - top.unsqueeze(-1))
        local = labels - first
        foreign = (local < 0) | (local >= columns)
        local = local.masked_fill(foreign, 0)
        own = (z.gather(-1, local.unsqueeze(-1)).squeeze(-1) - top).masked_fill(foreign, 0.0)
        total = exponentials.sum(dim=-1)
        if tp.group is not None:
            packed = all_reduce(torch.stack([own, total]), tp.group)
            own, total = packed[0], packed[1]
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), local, foreign)
        ctx.dtype = logits.dtype
        return torch.log(total) - own

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, local, foreign = ctx.saved_tensors
        grad = softmax.clone()
        mine = (~foreign).to(grad.dtype).unsqueeze(-1)
        grad.scatter_add_(-1, local.unsqueeze(-1), -mine)
        grad *= grads[0].unsqueeze(-1)
        return grad.to(ctx.dtype), None, None, None
