"""The loss of each token, by our kernels or by torch's operations: the same numbers but for rounding."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.mesh import all_reduce
from trainer.parallel.tensor import TensorParallel, cross_entropy


def token_losses(logits: Tensor, labels: Tensor, vocab_size: int, tp: TensorParallel, *, use_triton: bool) -> Tensor:
    """Loss of each token in nats: logits [..., padded vocabulary / size], labels int64 [...] -> float32 [...].

    Columns from `vocab_size` on are padding and take no part. `logits` must not be used afterwards: with `use_triton`
    the gradient is written over them.
    """
    if not use_triton:
        return cross_entropy(logits, labels, vocab_size, tp)
    loss: Tensor = _InPlaceCrossEntropy.apply(logits, labels, vocab_size, tp)
    return loss


class _InPlaceCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab_size: int, tp: TensorParallel) -> Tensor:
        from trainer.kernels.cross_entropy import row_terms

        width = logits.shape[-1]
        first = tp.rank * width
        columns = max(0, min(width, vocab_size - first))
        rows, flat = logits.view(-1, width), labels.reshape(-1)
        top, total, own = row_terms(rows, flat, columns, first)
        if tp.group is not None:
            highest = top.clone()
            dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=tp.group)
            packed = all_reduce(torch.stack([own, total * torch.exp(top - highest)]), tp.group)
            own, total, top = packed[0], packed[1], highest
        log_total = torch.log(total)
        ctx.save_for_backward(logits, flat, top, log_total)
        ctx.columns, ctx.first = columns, first
        return (log_total - (own - top)).view(labels.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        from trainer.kernels.cross_entropy import gradient_in_place

        logits, flat, top, log_total = ctx.saved_tensors
        rows = logits.view(-1, logits.shape[-1])
        grad = grads[0].reshape(-1).contiguous()
        gradient_in_place(rows, flat, top, log_total, grad, ctx.columns, ctx.first)
        return logits, None, None, None
