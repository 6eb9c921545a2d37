"""The stages clean, dedup and shuffle."""

from tasks.artifacts import DocumentShards
from tasks.clean.clean_stage import clean_documents
from tasks.clean.config import CleanConfig, DedupConfig, ShuffleConfig
from tasks.clean.dedup_stage import dedup_documents
from tasks.clean.shuffle_stage import shuffle_documents
from tasks.stages import Stage

CLEAN = Stage(
    name="clean",
    version=3,
    config=CleanConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=clean_documents,
    description="Repair text, keep what is long enough and in a wanted language",
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
SHUFFLE = Stage(
    name="shuffle",
    version=3,
    config=ShuffleConfig,
    inputs=(DocumentShards,),
    output=DocumentShards,
    run=shuffle_documents,
    description="Shuffle all documents",
)
