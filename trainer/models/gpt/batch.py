"""From samples to a micro-batch: inputs, labels, positions, and what document borders mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.models.gpt.model import Batch


def document_starts(tokens: Tensor, eod_token_id: int) -> Tensor:
    """For each place of tokens [batch, sequence] where its document starts: int64 [batch, sequence].

    A document ends with its end-of-document token; the next one starts after it.
    """
    length = tokens.shape[1]
    places = torch.arange(length, device=tokens.device).expand_as(tokens)
    ends = tokens == eod_token_id
    begins = torch.zeros_like(tokens)
    begins[:, 1:] = torch.where(ends[:, :-1], places[:, 1:], torch.zeros_like(places[:, 1:]))
    return begins.cummax(dim=1).values


def make_batch(
    samples: npt.NDArray[np.int64],
    eod_token_id: int,
    device: torch.device,
    *,
    reset_position_ids: bool = False,
    reset_attention_mask: bool = False,
    eod_mask_loss: bool = False,
) -> Batch:
    """A micro-batch from samples, int64 [batch, sequence + 1]. Each option stands on its own."""
    rows = torch.from_numpy(samples)
    if device.type == "cuda":
        rows = rows.pin_memory().to(device, non_blocking=True)
    tokens, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    length = tokens.shape[1]
    positions = torch.arange(length, device=device).expand_as(tokens)
    starts = document_starts(tokens, eod_token_id) if reset_position_ids or reset_attention_mask else None
    mask = None
    if reset_attention_mask and starts is not None:
        same = starts.unsqueeze(2) == starts.unsqueeze(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        mask = (same & causal).unsqueeze(1)
    if reset_position_ids and starts is not None:
        positions = positions - starts
    loss_mask = torch.ones(tokens.shape, dtype=torch.float32, device=device)
    if eod_mask_loss:
        loss_mask = (tokens != eod_token_id).float()
    return Batch(tokens, labels, positions, loss_mask, mask)
