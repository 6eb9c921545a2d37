"""Settings of training: the trainer's own, as a stage's settings."""

from __future__ import annotations

from tasks.configuration import StageConfig
from trainer.config import TrainConfig as TrainerConfig
from trainer.config import TrainResources


class TrainConfig(TrainerConfig, StageConfig):
    """The model, its optimizer, its parallel layout and the length of training. See trainer.config for each part."""

    resources: TrainResources = TrainResources()  # type: ignore[assignment]
    """Device, threads and limits; they never change what is made."""
