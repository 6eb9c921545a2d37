"""Settings of the conversion to a Hugging Face directory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.configuration import Resources, StageConfig


class ConvertResources(Resources):
    """How fast, never what."""

    timeout_seconds: float | None = Field(default=None, gt=0)
    """The conversion is ended after this time; none means no limit."""


class ConvertConfig(StageConfig):
    """The published model directory."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the published weights; float32 is exactly what was trained."""
    logit_tolerance: float = Field(default=1e-4, gt=0, le=1e-2)
    """Largest accepted difference between transformers' logits and ours in fp32, as a fraction of the largest logit
    where that is above 1. A model beyond it is not published."""
    resources: ConvertResources = ConvertResources()
    """Limits; they never change what is made."""
