"""Every stage by name, for the command line and the flow. Free of Prefect."""

from __future__ import annotations

from typing import Any

from tasks.clean.stage import CLEAN, DECONTAMINATE, DEDUP, JUDGE, SHUFFLE
from tasks.convert.stage import CONVERT
from tasks.infer.stage import EVALUATE, SAMPLE
from tasks.scrape.stage import EXTRACT, FETCH, FILTER
from tasks.stages import Stage
from tasks.tokenize.stage import TOKENIZE, VOCABULARY
from tasks.train.stage import TRAIN

STAGES: dict[str, Stage[Any]] = {
    stage.name: stage
    for stage in (
        FILTER, FETCH, EXTRACT, CLEAN, JUDGE, DEDUP, DECONTAMINATE, SHUFFLE,
        VOCABULARY, TOKENIZE, TRAIN, CONVERT, EVALUATE, SAMPLE,
    )
}  # fmt: skip
