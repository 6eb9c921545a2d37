"""Prefect tasks of tokenizing."""

from tasks.orchestration import stage_task
from tasks.tokenize.stage import TOKENIZE, VOCABULARY

train_vocabulary = stage_task(VOCABULARY)
tokenize = stage_task(TOKENIZE)
