"""How text is drawn from a model: settings without torch, shared by the stage, the command and the engine."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_SEED = 2**64 - 1


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


Finite = Annotated[float, AfterValidator(_finite)]


def _no_empty_text(values: tuple[str, ...]) -> tuple[str, ...]:
    if any(not value for value in values):
        raise ValueError("an empty stop string would stop everything at once; leave it out")
    return values


class SamplingConfig(BaseModel):
    """How the next token is chosen and when a text ends. Applied in the order in which the fields stand here."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    repetition_penalty: Finite = Field(default=1.0, gt=0)
    """Divides positive logits of tokens already seen (prompt or text) and multiplies negative ones; 1 is off."""
    presence_penalty: Finite = Field(default=0.0, ge=-2, le=2)
    """Subtracted once from the logit of every token already generated; 0 is off."""
    logit_bias: dict[int, Finite] = Field(default_factory=dict)
    """Added to the logits of these token ids."""
    temperature: Finite = Field(default=1.0, ge=0)
    """Logits are divided by it; 0 always takes the most likely token."""
    top_k: int = Field(default=0, ge=0)
    """Keep the k most likely tokens and any that tie with the last of them; 0 or more than the vocabulary is off."""
    top_p: Finite = Field(default=1.0, ge=0, le=1)
    """Keep the fewest most likely tokens whose probabilities sum to at least this; 0 keeps the first, 1 is off."""
    min_p: Finite = Field(default=0.0, ge=0, le=1)
    """Drop tokens less likely than this fraction of the most likely one; 0 is off."""
    seed: int = Field(default=1234, ge=0, le=MAX_SEED)
    """Decides every draw. The same prompt and seed give the same text, alone or in a batch."""
    max_new_tokens: int = Field(default=128, ge=1)
    """Tokens to generate at most; a text ends sooner at the end-of-document token or when the context is full."""
    stop: Annotated[tuple[str, ...], AfterValidator(_no_empty_text)] = ()
    """Texts that end the generation; they are cut off."""
    stop_at_eod: bool = True
    """End at the end-of-document token, which is never part of the text; false forbids that token instead."""

    @property
    def has_penalty(self) -> bool:
        """Whether the choice depends on the tokens that came before."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0
