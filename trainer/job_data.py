"""The samples of a job: training in its order of epochs, and validation."""

from __future__ import annotations

from trainer.config import TrainJob
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import IndexedDataset
from trainer.data.splits import SplitName
from trainer.metrics import ExitCode, TrainError
from trainer.parallel.mesh import Mesh, any_rank
from trainer.sample_order import EpochSamples, SampleSource

EPOCH_SEED_STEP = 0x9E3779B9
"""Between the seeds of two epochs; far apart, so that runs with neighbouring seeds share none."""


def open_data(job: TrainJob, mesh: Mesh) -> tuple[SampleSource, GPTDataset]:
    """Training and validation samples. Rank 0 builds the indices first, the others find them.

    Raises TrainError on every rank when any of them cannot have the data.
    """
    data: tuple[SampleSource, GPTDataset] | None = None
    for is_turn in (mesh.rank == 0, mesh.rank != 0):
        error: Exception | None = None
        try:
            data = _build(job) if is_turn else data
        except (ValueError, OSError) as found:
            error = found
        if any_rank(error is not None, mesh.world_group):
            message = str(error or "another rank cannot read the corpus and says why")
            remedy = "Check the corpus; or give more text, a shorter seq_length, or more weight to training in split."
            raise TrainError(message, remedy, ExitCode.CONFIG) from error
    assert data is not None
    return data


def _build(job: TrainJob) -> tuple[SampleSource, GPTDataset]:
    train, corpus = job.train, IndexedDataset(job.corpus_prefix)

    def samples(split: SplitName, seed: int, number: int | None) -> GPTDataset:
        return GPTDataset(
            corpus,
            split=split,
            split_weights=train.split,
            seq_length=train.seq_length,
            num_samples=number,
            seed=seed,
            cache_dir=job.index_cache_dir,
        )

    def epoch(number: int) -> GPTDataset:
        return samples("train", (train.seed + number * EPOCH_SEED_STEP) % 2**32, None)

    first = epoch(0)
    if len(first) == 0:
        raise ValueError("the training part of the corpus holds no full sample")
    validation = samples("valid", train.seed, None)
    if train.epoch_order == "mixed":
        return samples("train", train.seed, train.num_samples), validation
    return EpochSamples(epoch, train.num_samples, first), validation
