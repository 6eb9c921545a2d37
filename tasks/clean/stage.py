"""The stages clean, judge, dedup, decontaminate and shuffle."""

from tasks.artifacts import DocumentShards
from tasks.clean.clean_stage import clean_documents
from tasks.clean.config import CleanConfig, DecontaminateConfig, DedupConfig, JudgeConfig, ShuffleConfig
from tasks.clean.decontaminate_stage import decontaminate_documents
from tasks.clean.dedup_stage import dedup_documents
from tasks.clean.judge_stage import judge_documents
from tasks.clean.shuffle_stage import shuffle_documents
from tasks.stages import Stage

CLEAN = Stage(
    name="clean",
    version=4,
    config=CleanConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=clean_documents,
    description="Repair text, keep what is long enough and in a wanted language",
)
JUDGE = Stage(
    name="judge",
    version=1,
    config=JudgeConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=judge_documents,
    description="Move thresholds of quality without cleaning again",
)
DEDUP = Stage(
    name="dedup",
    version=3,
    config=DedupConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=dedup_documents,
    description="Drop exact and near copies",
)
DECONTAMINATE = Stage(
    name="decontaminate",
    version=1,
    config=DecontaminateConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=decontaminate_documents,
    description="Cut out what benchmarks hold",
)
SHUFFLE = Stage(
    name="shuffle",
    version=3,
    config=ShuffleConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=shuffle_documents,
    description="Shuffle all documents",
)
