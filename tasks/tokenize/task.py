"""Prefect tasks of tokenizing."""

from tasks.orchestration import stage_task
from tasks.tokenize.stage import LOAD_VOCABULARY, TOKENIZE, VOCABULARY

train_vocabulary = stage_task(VOCABULARY)
load_vocabulary = stage_task(LOAD_VOCABULARY)
tokenize = stage_task(TOKENIZE)
