"""GPT-2, written for one device; a stage of it when it is given some of the layers.

Learned positions, LayerNorm before each part, GELU in its tanh form, output head tied to the embedding. Names of
parameters are global and do not depend on the layout: `wte.weight` is the embedding on the first stage and the head on
the last. Rows of `attn.qkv` are [head, 3, size] (Megatron's order since checkpoint version 2), so that the slice of a
tensor rank holds whole heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.kernels.choice import Kernels, use_repeatable_code
from trainer.models.layers import ColumnLinear, LayerNorm, RowLinear, attention
from trainer.models.loss import token_losses
from trainer.models.randomness import Dropout, DropoutContext
from trainer.parallel.tensor import TensorParallel, embed


@dataclass(frozen=True)
class Batch:
    """One micro-batch on the device."""

    tokens: Tensor
    """int64 [batch, sequence]"""
    labels: Tensor
    """int64 [batch, sequence]: the token after each."""
    positions: Tensor
    """int64 [batch, sequence]"""
    loss_mask: Tensor
    """float32 [batch, sequence]: 1 where a label counts."""
    attention_mask: Tensor | None
    """bool [batch, 1, sequence, sequence], or None for plain causality."""


@dataclass(frozen=True)
class Part:
    """Which part of the model a rank holds."""

    first_layer: int
    num_layers: int
    is_first: bool
    is_last: bool


class Embedding(nn.Module):
    """A table of vectors."""

    def __init__(self, num_rows: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, size))


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: ModelConfig, layer: int, tp: TensorParallel, context: DropoutContext) -> None:
        super().__init__()
        h = config.hidden_size
        self.num_heads = config.num_attention_heads // tp.size
        self.first_head = tp.rank * self.num_heads
        self.qkv = ColumnLinear(h, 3 * h, tp)
        self.proj = RowLinear(h, h, tp)
        self.dropout = Dropout(context, layer, "attention", config.attention_dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        fused = self.qkv(x).view(batch, length, self.num_heads, 3, -1)
        query, key, value = (part.transpose(1, 2) for part in fused.unbind(3))
        mixed = attention(query, key, value, mask, self.dropout, self.first_head)
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Up, GELU, down."""

    def __init__(self, config: ModelConfig, tp: TensorParallel) -> None:
        super().__init__()
        self.up = ColumnLinear(config.hidden_size, config.ffn_size, tp)
        self.down = RowLinear(config.ffn_size, config.hidden_size, tp)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: ModelConfig, layer: int, tp: TensorParallel, context: DropoutContext) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.hidden_size, config.layernorm_epsilon)
        self.attn = Attention(config, layer, tp, context)
        self.ln_2 = LayerNorm(config.hidden_size, config.layernorm_epsilon)
        self.mlp = FeedForward(config, tp)
        self.attn_dropout = Dropout(context, layer, "attn", config.hidden_dropout)
        self.mlp_dropout = Dropout(context, layer, "mlp", config.hidden_dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn_dropout(self.attn(self.ln_1(x), mask))
        return x + self.mlp_dropout(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    """The whole model, or one stage of it."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        num_positions: int,
        dtype: torch.dtype = torch.float32,
        part: Part | None = None,
        tp: TensorParallel | None = None,
    ) -> None:
        """`dtype`: type of the residual stream. Parameters are fp32 and empty until they are initialised or loaded."""
        super().__init__()
        tp = tp or TensorParallel()
        part = part or Part(0, config.num_layers, is_first=True, is_last=True)
        self.config, self.part, self.tp = config, part, tp
        self.vocab_size, self.num_positions, self.dtype = vocab_size, num_positions, dtype
        self.padded_vocab_size = config.padded_vocab_size(vocab_size, tp.size)
        self.context = DropoutContext()
        self.kernels = Kernels()
        if part.is_first or part.is_last:
            self.wte = Embedding(self.padded_vocab_size // tp.size, config.hidden_size)
        if part.is_first:
            self.wpe = Embedding(num_positions, config.hidden_size)
            self.embedding_dropout = Dropout(self.context, -1, "embedding", config.hidden_dropout)
        layers = range(part.first_layer, part.first_layer + part.num_layers)
        self.h = nn.ModuleDict({str(index): Block(config, index, tp, self.context) for index in layers})
        if part.is_last:
            self.ln_f = LayerNorm(config.hidden_size, config.layernorm_epsilon)

    def use(self, kernels: Kernels) -> None:
        """Run on these kernels from now on. Names of parameters do not change."""
        self.kernels = kernels
        if kernels.compile_blocks:
            use_repeatable_code()
            for block in self.h.values():
                block.compile(dynamic=False)
            self._embed = torch.compile(self._embed, dynamic=False)  # type: ignore[method-assign]
            self._head_input = torch.compile(self._head_input, dynamic=False)  # type: ignore[method-assign]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = embed(tokens, self.wte.weight, self.tp) + F.embedding(positions, self.wpe.weight)
        return self.embedding_dropout(x.to(self.dtype))

    def _head_input(self, x: Tensor) -> Tensor:
        return self.tp.enter(self.ln_f(x))

    def hidden(self, batch: Batch, inputs: Tensor | None) -> Tensor:
        """The residual stream after this part's layers, [batch, sequence, hidden], from tokens or from `inputs`."""
        if self.part.is_first:
            x = self._embed(batch.tokens, batch.positions)
        else:
            assert inputs is not None, "a later stage works on what the stage before it sends"
            x = inputs
        for block in self.h.values():
            x = block(x, batch.attention_mask)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """This rank's columns of the logits, [..., padded vocabulary / size]; last part only."""
        x = self._head_input(x)
        return F.linear(x, self.wte.weight.to(x.dtype))

    def token_losses(self, x: Tensor, labels: Tensor) -> Tensor:
        """Loss of each token in nats, float32 [batch, sequence]; last part only."""
        use_triton = self.kernels.triton_loss
        return token_losses(self.logits(x), labels, self.vocab_size, self.tp, use_triton=use_triton)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the true vocabulary, [batch, sequence, vocab_size], of a whole model on one rank."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        mask = torch.ones_like(tokens, dtype=torch.float32)
        batch = Batch(tokens, tokens, positions, mask, None)
        return self.logits(self.hidden(batch, None))[..., : self.vocab_size]
