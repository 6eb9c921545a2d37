"""A corpus in pieces: which lines of which shard each worker takes, and how finished pieces become one .bin/.idx."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tasks.records import read_bytes
from trainer.data.indexed_dataset import write_index

SPLIT_ABOVE_BYTES = 1 << 20
"""A shard file larger than this is cut into pieces, so that a corpus of one large shard keeps all workers busy."""
MOST_PARTS = 4
"""Parts of one shard at most: each has to unpack what lies before it."""
MANY_SHARDS = 256
"""With so many shards, shards are pieces enough; they need not be read twice."""
COPY_BYTES = 16 << 20
CORPUS = "corpus"
MAP_NAME = "documents.jsonl.zst"


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a shard."""

    name: str
    shard: Path
    first_line: int
    """Counted from 0."""
    num_lines: int | None
    """None means: to the end."""


@dataclass(frozen=True)
class PieceFiles:
    """What a finished piece leaves in the scratch folder."""

    tokens: str
    """Token ids, in the dtype of the corpus."""
    lengths: str
    """Tokens of each document, int32, 0 for an empty one."""
    map: str
    """One zstd frame of JSON lines {id, url, shard, row}, a line for each document."""

    @classmethod
    def of(cls, piece_name: str) -> PieceFiles:
        """The files of a piece, as paths relative to the stage directory."""
        stem = f".scratch/{piece_name}"
        return cls(f"{stem}.bin", f"{stem}.lengths", f"{stem}.map")


def plan_pieces(shards: Sequence[Path]) -> list[Piece]:
    """Cut shards into pieces, in order. The plan depends on the files alone, never on the number of workers."""
    pieces: list[Piece] = []
    for number, shard in enumerate(shards):
        num_parts = min(MOST_PARTS, -(-shard.stat().st_size // SPLIT_ABOVE_BYTES))
        if num_parts <= 1 or len(shards) >= MANY_SHARDS:
            pieces.append(Piece(f"piece-{number:06d}-000", shard, 0, None))
            continue
        lines_per_part = -(-_count_lines(shard) // num_parts)
        for part in range(num_parts):
            # The last part takes what is there, so that no line can be left over.
            num_lines = lines_per_part if part < num_parts - 1 else None
            pieces.append(Piece(f"piece-{number:06d}-{part:03d}", shard, part * lines_per_part, num_lines))
    return pieces


def _count_lines(path: Path) -> int:
    return 1 + sum(block.count(b"\n") for block in read_bytes(path))


def join_pieces(directory: Path, pieces: Sequence[PieceFiles], dtype: DTypeLike) -> tuple[int, int]:
    """Join finished pieces into corpus.bin, corpus.idx and the document map; returns documents and tokens.

    Megatron's layout: a document is one sequence, and an empty document has none (its border is repeated).
    """
    _concatenate((directory / piece.tokens for piece in pieces), directory / f"{CORPUS}.bin")
    _concatenate((directory / piece.map for piece in pieces), directory / MAP_NAME)
    lengths: NDArray[Any] = np.concatenate(
        [np.empty(0, dtype="<i4"), *(np.fromfile(directory / piece.lengths, dtype="<i4") for piece in pieces)]
    )
    filled = lengths > 0
    borders = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(filled, out=borders[1:])
    write_index(directory / f"{CORPUS}.idx", lengths[filled], borders, dtype)
    return len(lengths), int(lengths.sum(dtype=np.int64))


def _concatenate(sources: Iterable[Path], target: Path) -> None:
    temporary = target.with_name(target.name + ".tmp")
    with temporary.open("wb") as stream:
        for source in sources:
            with source.open("rb") as part:
                shutil.copyfileobj(part, stream, COPY_BYTES)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(target)
