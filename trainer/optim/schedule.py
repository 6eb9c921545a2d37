"""The learning rate as a function of samples consumed."""

from __future__ import annotations

import math

from trainer.config import AdamWConfig, ScheduleConfig


def learning_rate(optimizer: AdamWConfig, schedule: ScheduleConfig, num_samples: int, total_samples: int) -> float:
    """The rate after `num_samples` of `total_samples`.

    It rises linearly from 0 over the first warmup_fraction of training, then falls to min_learning_rate in the shape
    that `schedule.name` names; "constant" stays. Megatron-LM counts the same way (OptimizerParamScheduler).
    """
    highest, lowest = optimizer.learning_rate, optimizer.min_learning_rate
    warmup = schedule.warmup_fraction * total_samples
    if warmup > 0 and num_samples <= warmup:
        return highest * num_samples / warmup
    if schedule.name == "constant":
        return highest
    if num_samples >= total_samples:
        return lowest
    done = (num_samples - warmup) / (total_samples - warmup)
    shape = 1.0 - done if schedule.name == "linear" else 0.5 * (math.cos(math.pi * done) + 1.0)
    return lowest + shape * (highest - lowest)
