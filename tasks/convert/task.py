"""Prefect task of conversion."""

from tasks.convert.stage import CONVERT
from tasks.orchestration import stage_task

convert = stage_task(CONVERT)
