"""What is made anew of the lines that may be copies: sets of n-grams, and digests of whole texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.clean.candidates import Numbers
from tasks.clean.dedup import GramFiles
from tasks.clean.digests import columns, open_spool, save, text_digest
from tasks.clean.lines import read_text
from tasks.clean.shingles import BATCH_CHARACTERS, Hashes, byte_hashes, distinct, encode
from tasks.progress import StageReport
from tasks.records import source_name


@dataclass(frozen=True)
class CompareShard:
    """Work on one file: the lines (counted from 0 in the file, in order) whose n-grams and digests are wanted."""

    source: str
    digests: str
    """Its digests file, which lies beside its lines."""
    grams_of: Numbers
    texts_of: Numbers
    words_per_shingle: int


def compare_shard(shard: CompareShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write the sets of n-grams one after another, where each ends, and the text digests, uint64 [2, texts]."""
    source = Path(shard.source)
    sets: list[Hashes] = []
    digests: list[bytes] = []
    batch: list[bytes] = []
    held = 0

    def flush() -> None:
        hashes, offsets = byte_hashes(batch, shard.words_per_shingle)
        bounds = offsets.tolist()
        sets.extend(distinct(hashes[bounds[at] : bounds[at + 1]]) for at in range(len(batch)))
        batch.clear()

    spool, name = open_spool(Path(shard.digests)), source_name(source)
    wanted = np.union1d(shard.grams_of, shard.texts_of)
    with_grams, with_text = np.isin(wanted, shard.grams_of).tolist(), np.isin(wanted, shard.texts_of).tolist()
    for number, grams, whole in zip(wanted.tolist(), with_grams, with_text, strict=True):
        text = read_text(spool.line(number), number + 1, name)[1]
        if whole:
            digests.append(text_digest(text))
        if grams:
            batch.append(encode(text))
            held += len(batch[-1])
            if held >= BATCH_CHARACTERS:
                flush()
                held = 0
    flush()
    ends = np.cumsum([len(one) for one in sets], dtype=np.int64)
    names = [f"{source.name}.{kind}.npy" for kind in ("grams", "ends", "texts")]
    save(directory / names[0], np.concatenate([np.zeros(0, np.uint64), *sets]))
    save(directory / names[1], ends)
    save(directory / names[2], columns(digests))
    return names, StageReport(unit="documents")


def open_grams(directory: Path, names: Sequence[str], numbers: Numbers) -> GramFiles:
    """The sets that `compare_shard` wrote for the shards `names`; `numbers` are their lines in the corpus."""
    arrays = [np.asarray(np.load(directory / f"{name}.grams.npy", mmap_mode="r")) for name in names]
    ends = [np.load(directory / f"{name}.ends.npy") for name in names]
    nothing = np.zeros(0, np.int64)
    return GramFiles(
        numbers,
        arrays,
        np.repeat(np.arange(len(names)), [len(one) for one in ends]),
        np.concatenate([nothing, *(np.concatenate([nothing, [0], one[:-1]]) for one in ends if len(one))]),
        np.concatenate([nothing, *ends]),
    )


def open_texts(directory: Path, names: Sequence[str], numbers: Numbers) -> tuple[Numbers, Hashes]:
    """The text digests of the lines `numbers`."""
    digests = [np.load(directory / f"{name}.texts.npy") for name in names]
    return numbers, np.concatenate([np.zeros((2, 0), np.uint64), *digests], axis=1)
