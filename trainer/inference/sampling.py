"""The next token from logits: penalties, temperature, top-k, top-p, min-p, and one draw a row.

Everything after the model runs in fp64: a temperature of 1e-300 or a vocabulary of a million tokens is no special
case, and rounding of the model's own arithmetic practically never changes a draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.inference.config import SamplingConfig

OFF = float("-inf")


def adjust_logits(logits: Tensor, config: SamplingConfig, prompt: Sequence[int], generated: Sequence[int]) -> Tensor:
    """Penalties and biases of one row: fp64 [vocab_size] from logits [vocab_size].

    The repetition penalty is that of CTRL (Keskar et al. 2019, arXiv:1909.05858, section 4.1) with the sign handled, so
    that it always makes a token less likely. Raises ValueError for a biased id outside the vocabulary.
    """
    logits = logits.double()
    if config.repetition_penalty != 1 and (seen := {*prompt, *generated}):
        ids = torch.tensor(sorted(seen), device=logits.device)
        old = logits[ids]
        factor = config.repetition_penalty
        logits = logits.index_put((ids,), torch.where(old > 0, old / factor, old * factor))
    if config.presence_penalty and generated:
        ids = torch.tensor(sorted(set(generated)), device=logits.device)
        logits = logits.index_put((ids,), logits[ids] - config.presence_penalty)
    for token, bias in config.logit_bias.items():
        if not 0 <= token < logits.shape[-1]:
            raise ValueError(f"logit_bias: token {token} is outside the vocabulary of {logits.shape[-1]}")
        logits = logits.clone()
        logits[token] += bias
    return logits


def token_probabilities(logits: Tensor, configs: Sequence[SamplingConfig]) -> Tensor:
    """Probabilities [rows, vocab_size] fp64 that each row draws from; filtered tokens have exactly 0.

    `logits` is [rows, vocab_size], row i filtered by `configs[i]`: temperature, then top-k, then top-p of what is left,
    then min-p. Greedy rows (temperature 0) get probability 1 at their largest logit, the lowest id of equal ones.
    """
    logits = logits.double()
    vocab_size = logits.shape[-1]
    device = logits.device

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)[:, None]

    largest = logits.max(dim=-1, keepdim=True).values
    # Shifted before the division: 0 / t stays 0, so no temperature however small makes inf - inf.
    scaled = (logits - largest) / column([config.temperature or 1.0 for config in configs])
    top_k = [config.top_k if 0 < config.top_k < vocab_size else vocab_size for config in configs]
    if (widest := max((k for k in top_k if k < vocab_size), default=0)) > 0:
        values = scaled.topk(widest, dim=-1).values
        last = torch.tensor([min(k, widest) for k in top_k], device=device)[:, None] - 1
        limited = torch.tensor([k < vocab_size for k in top_k], device=device)[:, None]
        scaled = scaled.masked_fill(limited & (scaled < values.gather(-1, last)), OFF)
    if any(config.top_p < 1 for config in configs):
        ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        top_p = column([config.top_p for config in configs])
        beyond = (before >= top_p) & (top_p < 1)
        beyond[:, 0] = False
        scaled = scaled.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), OFF)
    if any(config.min_p > 0 for config in configs):
        # The most likely token stands at 0 after the shift, so the ratio of probabilities is exp(scaled).
        scaled = scaled.masked_fill(scaled.exp() < column([config.min_p for config in configs]), OFF)
    probabilities = scaled.softmax(dim=-1)
    greedy = [index for index, config in enumerate(configs) if config.temperature == 0]
    if greedy:
        best = logits[greedy].max(dim=-1).indices
        probabilities[greedy] = torch.nn.functional.one_hot(best, vocab_size).double()
    return probabilities


def draw_tokens(probabilities: Tensor, uniforms: Sequence[float]) -> Tensor:
    """One token id a row, int64 [rows], by inverting the cumulative distribution at `uniforms[i]` in [0, 1).

    A token of probability 0 is never drawn.
    """
    cumulative = probabilities.cumsum(dim=-1)
    targets = torch.tensor(uniforms, dtype=torch.float64, device=probabilities.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


def next_tokens(logits: Tensor, configs: Sequence[SamplingConfig], uniforms: Sequence[float]) -> Tensor:
    """One token id a row, int64 [rows], from adjusted logits [rows, vocab_size].

    Raises ValueError for NaN, +inf, or a row without any possible token: the weights are damaged.
    """
    largest, best = logits.max(dim=-1)
    if not bool(torch.isfinite(largest).all()):
        raise ValueError("the model's logits are not finite numbers; its weights are damaged or overflowed")
    if all(config.temperature == 0 for config in configs):
        return best
    return draw_tokens(token_probabilities(logits, configs), uniforms)
