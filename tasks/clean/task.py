"""Prefect tasks of cleaning."""

from tasks.clean.stage import CLEAN, DECONTAMINATE, DEDUP, JUDGE, SHUFFLE
from tasks.orchestration import stage_task

clean = stage_task(CLEAN)
judge = stage_task(JUDGE)
dedup = stage_task(DEDUP)
decontaminate = stage_task(DECONTAMINATE)
shuffle = stage_task(SHUFFLE)
