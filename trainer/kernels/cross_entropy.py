"""Cross entropy over a (part of a) vocabulary in Triton: no copy of the logits, one pass forward and one backward.

Forward reads the logits once and gives each row's maximum, sum of exponentials and own logit; backward reads them again
and writes the gradient over them. That is the least traffic there can be: two reads and one write of [rows, columns].
Reference: `trainer.parallel.tensor.cross_entropy`. Tolerance against it in fp32: 2e-6 a loss, 1e-6 a gradient; in bf16
the gradient is rounded once. Any number of columns works.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
NUM_WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def _row_terms(logits, labels, top, total, own, stride, num_columns: tl.constexpr, first_column, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row) - first_column
    start = logits + row * stride
    places = tl.arange(0, block)
    best = tl.full((), float("-inf"), tl.float32)
    sums = tl.zeros((), tl.float32)
    for first in range(0, num_columns, block):
        z = tl.load(start + first + places, mask=first + places < num_columns, other=float("-inf")).to(tl.float32)
        raised = tl.maximum(best, tl.max(z, 0))
        # as long as all was -inf the sum stays 0
        safe = tl.where(raised == float("-inf"), 0.0, raised)
        sums = sums * tl.exp(best - safe) + tl.sum(tl.exp(z - safe), 0)
        best = raised
    tl.store(top + row, best)
    tl.store(total + row, sums)
    is_mine = (label >= 0) & (label < num_columns)
    tl.store(own + row, tl.load(start + label, mask=is_mine, other=0.0).to(tl.float32))


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(logits, labels, top, log_total, grads, stride, num_columns, width, first_column, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    label = tl.load(labels + row) - first_column
    grad = tl.load(grads + row)
    start = logits + row * stride
    z = tl.load(start + place, mask=place < num_columns, other=float("-inf")).to(tl.float32)
    value = tl.exp(z - tl.load(top + row) - tl.load(log_total + row)) - tl.where(place == label, 1.0, 0.0)
    tl.store(start + place, (value * grad).to(logits.dtype.element_ty), mask=place < width)


def row_terms(logits: Tensor, labels: Tensor, num_columns: int, first_column: int) -> tuple[Tensor, Tensor, Tensor]:
    """For logits [rows, width] of which the first `num_columns` count, and labels int64 [rows] of the whole vocabulary:
    the maximum, the sum of exp(logit - maximum), and the logit of the label (0 where it is not among these columns).

    `first_column` is the number of the first column in the whole vocabulary. All three are float32 [rows].
    """
    rows = logits.shape[0]
    top, total, own = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3))
    _row_terms[(rows,)](
        logits, labels, top, total, own, logits.stride(0), num_columns, first_column, block=BLOCK, num_warps=NUM_WARPS
    )
    return top, total, own


def gradient_in_place(
    logits: Tensor,
    labels: Tensor,
    top: Tensor,
    log_total: Tensor,
    grads: Tensor,
    num_columns: int,
    first_column: int,
) -> Tensor:
    """`logits` [rows, width] overwritten by grads x (softmax - one-hot of the label); padding columns by 0.

    `top` and `log_total`: float32 [rows], the maximum over the whole vocabulary and the logarithm of the sum of
    exp(logit - maximum); kept apart, because their sum would swallow the second where logits are large.
    """
    rows, width = logits.shape
    grid = (rows, triton.cdiv(width, BLOCK))
    _gradient[grid](
        logits, labels, top, log_total, grads, logits.stride(0), num_columns, width, first_column,
        block=BLOCK, num_warps=NUM_WARPS,
    )  # fmt: skip
    return logits
