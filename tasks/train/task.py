"""Prefect task of training."""

from tasks.orchestration import stage_task
from tasks.train.stage import TRAIN

train = stage_task(TRAIN)
