"""Text generation: requests of any length in, completions out, through a fixed number of slots.

Every step runs all slots, used or idle, and a prompt is read by itself. The shapes of the arithmetic then do not
depend on who else is in the batch, so a request alone and in company goes through the same numbers; together with
draws that depend on (seed, position) alone, that makes a text reproducible from its prompt and seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from trainer.inference.config import SamplingConfig
from trainer.inference.randomness import uniform
from trainer.inference.sampling import adjust_logits, next_tokens
from trainer.inference.streaming import StreamDecoder

DEFAULT_SLOTS = 8


class FinishReason(StrEnum):
    """Why a text ended."""

    EOD = "eod"
    """The model ended the document."""
    STOP = "stop"
    """A stop string was reached."""
    LENGTH = "length"
    """`max_new_tokens` were generated."""
    CONTEXT = "context"
    """Prompt and text fill the model's context."""


class SlotModel(Protocol):
    """What the engine needs of a model: slots that remember what they read."""

    context_size: int
    """Positions the model knows: prompt and text together are at most this long."""
    vocab_size: int
    """Number of token ids with a meaning; padding of the embedding is not counted."""

    def reserve(self, num_slots: int, num_positions: int) -> None:
        """Make room for `num_slots` texts of `num_positions` tokens; what was there is forgotten."""

    def read_prompt(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Start a text in `slot`. Returns the logits [vocab_size] after the last token."""

    def read_tokens(self, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
        """One more token in every slot, at these positions. Returns logits [num_slots, vocab_size]."""


@dataclass(frozen=True)
class Request:
    """One text to write."""

    prompt: tuple[int, ...]
    """Token ids; empty starts a document from the end-of-document token."""
    config: SamplingConfig


@dataclass(frozen=True)
class Completion:
    """One written text, without its prompt."""

    token_ids: tuple[int, ...]
    """The generated ids without the end-of-document token."""
    text: str
    """Cut before a stop string. Prompt markers and the end-of-document token are no part of it."""
    finish_reason: FinishReason
    seed: int
    """With the same prompt and settings this seed gives this text again."""
    num_prompt_tokens: int
    """Tokens of the prompt that were read (1 for an empty prompt: the end-of-document token)."""
    num_prompt_tokens_dropped: int
    """Tokens cut from the beginning of a prompt too long for the context."""


@dataclass
class _Row:
    index: int
    prompt: tuple[int, ...]
    dropped: int
    config: SamplingConfig
    decoder: StreamDecoder
    generated: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


def fit_prompt(prompt: Sequence[int], max_new_tokens: int, context_size: int) -> tuple[int, ...]:
    """The last tokens of a prompt, so many that the text still fits the context.

    A prompt is cut only when prompt and text together exceed the context, and never to less than half of it.
    """
    room = max(context_size - max_new_tokens, context_size // 2, 1)
    return tuple(prompt[-room:])


class DecodeEngine:
    """Generates for one model. Not thread-safe: one caller at a time."""

    def __init__(
        self, model: SlotModel, eod_token_id: int, token_bytes: Sequence[bytes], num_slots: int = DEFAULT_SLOTS
    ) -> None:
        """`token_bytes[id]` are the bytes of each token. Raises ValueError when they do not fit the model."""
        if len(token_bytes) != model.vocab_size:
            raise ValueError(f"the vocabulary has {len(token_bytes)} tokens, the model {model.vocab_size}")
        if not 0 <= eod_token_id < model.vocab_size:
            raise ValueError(f"eod_token_id {eod_token_id} is outside the vocabulary of {model.vocab_size}")
        if num_slots < 1:
            raise ValueError(f"num_slots is {num_slots}; at least one is needed")
        self.model, self.eod_token_id, self.num_slots = model, eod_token_id, num_slots
        # The marker is no text, even where a vocabulary spells it as ordinary characters.
        self._token_bytes = [b"" if token == eod_token_id else text for token, text in enumerate(token_bytes)]

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[Request], on_text: Callable[[int, str], None] | None = None
    ) -> list[Completion]:
        """Complete every request, in order. `on_text(index, piece)` gets each piece of text as soon as it is certain.

        Raises ValueError for a prompt token outside the vocabulary and for logits that are not finite.
        """
        if not requests:
            return []
        waiting = deque(self._row(index, request) for index, request in enumerate(requests))
        finished: dict[int, Completion] = {}
        longest = max(len(row.prompt) + row.config.max_new_tokens for row in waiting)
        self.model.reserve(self.num_slots, min(longest, self.model.context_size))
        slots: list[_Row | None] = [None] * self.num_slots
        while waiting or any(slots):
            for slot in range(self.num_slots):
                while slots[slot] is None and waiting:
                    row = waiting.popleft()
                    logits = self.model.read_prompt(slot, row.prompt)
                    slots[slot] = self._advance([row], logits[None], finished, on_text)[0]
            running = [(slot, row) for slot, row in enumerate(slots) if row is not None]
            if not running:
                continue
            tokens, positions = [0] * self.num_slots, [0] * self.num_slots
            for slot, row in running:
                tokens[slot] = row.generated[-1]
                positions[slot] = len(row.prompt) + len(row.generated) - 1
            logits = self.model.read_tokens(tokens, positions)
            kept = self._advance([row for _, row in running], logits[[slot for slot, _ in running]], finished, on_text)
            for (slot, _), row_or_none in zip(running, kept, strict=True):
                slots[slot] = row_or_none
        return [finished[index] for index in range(len(requests))]

    def _row(self, index: int, request: Request) -> _Row:
        prompt = request.prompt or (self.eod_token_id,)
        for token in prompt:
            if not 0 <= token < self.model.vocab_size:
                raise ValueError(f"prompt token {token} is outside the vocabulary of {self.model.vocab_size}")
        kept = fit_prompt(prompt, request.config.max_new_tokens, self.model.context_size)
        decoder = StreamDecoder(self._token_bytes, request.config.stop)
        return _Row(index, kept, len(prompt) - len(kept), request.config, decoder)

    def _advance(
        self,
        rows: Sequence[_Row],
        logits: Tensor,
        finished: dict[int, Completion],
        on_text: Callable[[int, str], None] | None,
    ) -> list[_Row | None]:
        """Draw a token for each row from `logits` [rows, vocab_size]; a row that is done becomes None."""
        adjusted = logits.double()
        for index, row in enumerate(rows):
            if row.config.has_penalty or row.config.logit_bias:
                adjusted[index] = adjust_logits(adjusted[index], row.config, row.prompt, row.generated)
            if not row.config.stop_at_eod:
                adjusted[index, self.eod_token_id] = float("-inf")
        uniforms = [uniform(row.config.seed, len(row.generated)) for row in rows]
        tokens = next_tokens(adjusted, [row.config for row in rows], uniforms).tolist()
        kept: list[_Row | None] = []
        for row, token in zip(rows, tokens, strict=True):
            reason = self._take(row, token, on_text)
            if reason is not None:
                finished[row.index] = self._complete(row, reason, on_text)
            kept.append(row if reason is None else None)
        return kept

    def _take(self, row: _Row, token: int, on_text: Callable[[int, str], None] | None) -> FinishReason | None:
        if token == self.eod_token_id:
            return FinishReason.EOD
        row.generated.append(token)
        self._say(row, row.decoder.push(token), on_text)
        if row.decoder.stopped:
            return FinishReason.STOP
        if len(row.generated) >= row.config.max_new_tokens:
            return FinishReason.LENGTH
        if len(row.prompt) + len(row.generated) >= self.model.context_size:
            return FinishReason.CONTEXT
        return None

    def _complete(self, row: _Row, reason: FinishReason, on_text: Callable[[int, str], None] | None) -> Completion:
        self._say(row, row.decoder.finish(), on_text)
        return Completion(
            token_ids=tuple(row.generated),
            text="".join(row.pieces),
            finish_reason=reason,
            seed=row.config.seed,
            num_prompt_tokens=len(row.prompt),
            num_prompt_tokens_dropped=row.dropped,
        )

    @staticmethod
    def _say(row: _Row, piece: str, on_text: Callable[[int, str], None] | None) -> None:
        if piece:
            row.pieces.append(piece)
            if on_text is not None:
                on_text(row.index, piece)
