"""Prefect tasks of cleaning."""

from tasks.clean.stage import CLEAN, DEDUP, SHUFFLE
from tasks.orchestration import stage_task

clean = stage_task(CLEAN)
dedup = stage_task(DEDUP)
shuffle = stage_task(SHUFFLE)
