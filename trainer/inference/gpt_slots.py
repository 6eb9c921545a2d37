"""Our GPT for decoding: keys and values of every slot are kept in one preallocated block.

The same function as `trainer.models.gpt.model` computes (a test compares them), written for inference: no dropout, no
parallelism, one new token in every slot a step, and always the same shapes for the same number of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.models.gpt.hf import GptShape

POSITIONS_PER_BLOCK = 64
"""Attention reads whole blocks of the cache, so that its cost follows the longest text and its shapes stay few."""


_Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values), each [rows, heads, length, head_size] -> attended values of the same shape."""


@dataclass(frozen=True)
class _Layer:
    ln_1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]
    proj: tuple[Tensor, Tensor]
    ln_2: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]


class GptSlots:
    """A GPT with slots; see `trainer.inference.engine.SlotModel` for what they do."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        shape: GptShape,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`state` is our full state by global name; rows of the embedding beyond the vocabulary are left out."""

        def pair(name: str) -> tuple[Tensor, Tensor]:
            return take(f"{name}.weight"), take(f"{name}.bias")

        def take(name: str) -> Tensor:
            return state[name].detach().to(device=device, dtype=dtype)

        self.shape = shape
        self.context_size = shape.max_position_embeddings
        self.vocab_size = shape.vocab_size
        self.device = torch.device(device)
        self.dtype = dtype
        # Padded ids have no row here, so no arithmetic can ever prefer one.
        self._tokens = take("wte.weight")[: shape.vocab_size].contiguous()
        self._positions = take("wpe.weight")
        self._final = pair("ln_f")
        self._layers = [
            _Layer(
                *(pair(f"h.{index}.{part}") for part in ("ln_1", "attn.qkv", "attn.proj", "ln_2", "mlp.up", "mlp.down"))
            )
            for index in range(shape.num_layers)
        ]
        self._cache = torch.empty(0)

    def reserve(self, num_slots: int, num_positions: int) -> None:
        """Room for `num_slots` texts of `num_positions` tokens; what was there is forgotten."""
        blocks = -(-max(num_positions, 1) // POSITIONS_PER_BLOCK)
        size = blocks * POSITIONS_PER_BLOCK
        heads, head_size = self._heads
        wanted = (self.shape.num_layers, 2, num_slots, heads, size, head_size)
        if tuple(self._cache.shape) != wanted:
            self._cache = torch.zeros(wanted, device=self.device, dtype=self.dtype)
        else:
            self._cache.zero_()

    @property
    def _heads(self) -> tuple[int, int]:
        return self.shape.num_attention_heads, self.shape.hidden_size // self.shape.num_attention_heads

    @torch.inference_mode()
    def hidden(self, tokens: Tensor) -> Tensor:
        """Final hidden states [rows, length, hidden_size] of token ids [rows, length], without any cache."""
        return self._run(tokens, torch.arange(tokens.shape[1], device=self.device), lambda _, q, k, v: _causal(q, k, v))

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab_size] of final hidden states [..., hidden_size]."""
        return F.linear(hidden, self._tokens)

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits [rows, length, vocab_size] of token ids [rows, length], without any cache."""
        return self.head(self.hidden(tokens))

    @torch.inference_mode()
    def read_prompt(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Start a text in `slot`. Returns the logits [vocab_size] after the last token."""

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache[layer, 0, slot, :, : len(tokens)] = k[0]
            self._cache[layer, 1, slot, :, : len(tokens)] = v[0]
            return _causal(q, k, v)

        ids = torch.tensor([list(tokens)], dtype=torch.int64, device=self.device)
        hidden = self._run(ids, torch.arange(len(tokens), device=self.device), attend)
        return self.head(hidden[0, -1])

    @torch.inference_mode()
    def read_tokens(self, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
        """One more token in every slot, at these positions. Returns logits [num_slots, vocab_size]."""
        size = (max(positions) // POSITIONS_PER_BLOCK + 1) * POSITIONS_PER_BLOCK
        places = torch.tensor(positions, dtype=torch.int64, device=self.device)
        rows = torch.arange(len(tokens), device=self.device)
        seen = (torch.arange(size, device=self.device) <= places[:, None])[:, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache[layer, 0, rows, :, places] = k[:, :, 0]
            self._cache[layer, 1, rows, :, places] = v[:, :, 0]
            keys, values = self._cache[layer, :, :, :, :size]
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)

        ids = torch.tensor(tokens, dtype=torch.int64, device=self.device)[:, None]
        return self.head(self._run(ids, places[:, None], attend)[:, 0])

    def _run(self, tokens: Tensor, positions: Tensor, attend: _Attend) -> Tensor:
        heads, head_size = self._heads
        size, epsilon = (self.shape.hidden_size,), self.shape.layernorm_epsilon
        x = F.embedding(tokens, self._tokens) + F.embedding(positions, self._positions)
        for index, layer in enumerate(self._layers):
            qkv = F.linear(F.layer_norm(x, size, *layer.ln_1, epsilon), *layer.qkv)
            q, k, v = qkv.unflatten(-1, (heads, 3, head_size)).transpose(1, 2).unbind(3)
            x = x + F.linear(attend(index, q, k, v).transpose(1, 2).flatten(2), *layer.proj)
            up = F.linear(F.layer_norm(x, size, *layer.ln_2, epsilon), *layer.up)
            x = x + F.linear(F.gelu(up, approximate="tanh"), *layer.down)
        return F.layer_norm(x, size, *self._final, epsilon)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
