"""Layers on plain tensors, written for one device: what is shared between ranks is said by a table beside the model.

A column-parallel linear holds [out / size, in] and its output is a part; a row-parallel one holds [out, in / size], and
its outputs are summed. With one rank both are ordinary. Weights are fp32 and are cast to the type of what they meet.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.models.randomness import Dropout
from trainer.parallel.tensor import TensorParallel


class LayerNorm(nn.Module):
    """LayerNorm with weight and bias; statistics in fp32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype), self.epsilon)


class ColumnLinear(nn.Module):
    """x [..., in] -> this rank's part of [..., out]."""

    def __init__(self, in_size: int, out_size: int, tp: TensorParallel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_size // tp.size, in_size))
        self.bias = nn.Parameter(torch.empty(out_size // tp.size))
        self._tp = tp

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self._tp.enter(x), self.weight.to(x.dtype), self.bias.to(x.dtype))


class RowLinear(nn.Module):
    """This rank's part of [..., in] -> the whole of [..., out]. The bias is added once, after the sum."""

    def __init__(self, in_size: int, out_size: int, tp: TensorParallel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_size, in_size // tp.size))
        self.bias = nn.Parameter(torch.empty(out_size))
        self._tp = tp

    def forward(self, x: Tensor) -> Tensor:
        if self._tp.size == 1:
            return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
        return self._tp.leave(F.linear(x, self.weight.to(x.dtype))) + self.bias.to(x.dtype)


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: Dropout, first_head: int
) -> Tensor:
    """Causal attention: [batch, heads, sequence, size] each -> the same.

    `mask`: bool [batch, 1, sequence, sequence], True where attending is allowed, or None for plain causality. With
    dropout the weights are written out, since their mask must not depend on how heads are shared between ranks.
    """
    if not dropout.is_active:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
    length = query.shape[-2]
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is None:
        mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    weights = torch.softmax(scores.float().masked_fill(~mask, float("-inf")), dim=-1).to(query.dtype)
    return dropout(weights, first=first_head) @ value
