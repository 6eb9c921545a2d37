"""Prefect tasks of evaluation and sampling."""

from tasks.infer.stage import EVALUATE, SAMPLE
from tasks.orchestration import stage_task

evaluate = stage_task(EVALUATE)
sample = stage_task(SAMPLE)
