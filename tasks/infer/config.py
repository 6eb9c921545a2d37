"""Settings of evaluation and sampling."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.configuration import Resources, StageConfig
from trainer.inference.config import SamplingConfig


class InferResources(Resources):
    """How fast, never what."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; auto takes the GPU when there is one."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """The work is ended after this time; none means no limit."""


class SampleConfig(SamplingConfig, StageConfig):
    """What the model is asked to write, and how."""

    prompts: tuple[str, ...] = Field(default=("",), min_length=1)
    """Beginnings to continue; an empty one starts a new document."""
    num_samples_per_prompt: int = Field(default=3, ge=1)
    """Texts for each prompt; the first is drawn with `seed`, the next with `seed` + 1, and so on."""
    resources: InferResources = InferResources()
    """Device and limits; they never change what is made."""


class EvaluateConfig(StageConfig):
    """Perplexity on a part of the corpus that training did not see."""

    split: str = "969,30,1"
    """Weights of the training, validation and test parts, as the trainer cuts the corpus."""
    part: Literal["train", "valid", "test"] = "valid"
    """The part that is measured. When it holds no whole sample the training part is measured, and said so."""
    seq_length: int | None = Field(default=None, ge=1)
    """Tokens a sample, as in training; none takes the model's context."""
    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Seed of the sample order, as in training; it does not change which tokens are measured."""
    batch_size: int = Field(default=8, ge=1)
    """Samples computed at the same time."""
    max_samples: int | None = Field(default=None, ge=1)
    """Measure only the first samples of the part; none measures all of them."""
    resources: InferResources = InferResources()
    """Device and limits; they never change what is made."""
