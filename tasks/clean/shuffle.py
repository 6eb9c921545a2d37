"""The parts of a global shuffle with bounded memory.

Every document gets a key that is a hash of seed, shard and row, so the order depends on nothing else: not on workers,
not on memory. Documents are written to scratch files in runs sorted by key; a shard of the result is a range of keys,
which is one stretch of every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.lines import write_vectors
from tasks.clean.shingles import Hashes, mix

ROW_BITS = 40
BIN_BITS = 20
END_OF_KEYS = 1 << 64
KEY, OFFSET, LENGTH = 0, 1, 2
Ends = npt.NDArray[np.int64]
# A memoryview, its places in lists and arrays, and an entry of the vector that is written.
LINE_OVERHEAD = 320


def order_keys(seed: int, shard: int, first_row: int, num_rows: int) -> Hashes:
    """uint64 keys of consecutive rows. No two rows have the same: every step is a bijection of (shard, row)."""
    rows = np.arange(first_row, first_row + num_rows, dtype=np.uint64) + np.uint64(shard << ROW_BITS)
    return mix(mix(rows) ^ mix(np.array([seed], np.uint64)))


class RunWriter:
    """Collects blocks of lines of one input shard and writes them in runs sorted by key.

    NAME.rows has the lines one after another, each with its newline; NAME.index.npy is uint64 [3, rows]: key, offset,
    length in the order of NAME.rows; NAME.runs.npy has the first place of each run in it.
    """

    def __init__(self, directory: Path, name: str, seed: int, shard: int, run_bytes: int) -> None:
        """`run_bytes`: memory for lines that are held before a run is written."""
        self.names = [f"{name}.rows", f"{name}.index.npy", f"{name}.runs.npy"]
        self._directory, self._seed, self._shard, self._run_bytes = directory, seed, shard, run_bytes
        (directory / self.names[0]).write_bytes(b"")
        self._blocks: list[tuple[memoryview, Ends]] = []
        self._held = self._offset = self.num_rows = 0
        self._index: list[Hashes] = []
        self._runs: list[int] = []

    def add(self, block: memoryview, ends: Ends) -> None:
        """More rows: lines with their newlines, and the place after each."""
        self._blocks.append((block, ends))
        self._held += memory_of(len(block), len(ends))
        if self._held >= self._run_bytes:
            self._flush()

    def close(self) -> None:
        """Write the last run and the index."""
        self._flush()
        np.save(self._directory / self.names[1], np.concatenate([np.zeros((3, 0), np.uint64), *self._index], axis=1))
        np.save(self._directory / self.names[2], np.array(self._runs, np.int64))

    def _flush(self) -> None:
        lines = [line for block, ends in self._blocks for line in views_of(block, ends)]
        if not lines:
            return
        keys = order_keys(self._seed, self._shard, self.num_rows, len(lines))
        order = np.argsort(keys)
        lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in self._blocks]).astype(np.uint64)[order]
        ends_of_rows = np.cumsum(lengths) + np.uint64(self._offset)
        with (self._directory / self.names[0]).open("ab", buffering=0) as stream:
            write_vectors(stream.fileno(), [lines[place] for place in order.tolist()])
        self._index.append(np.stack([keys[order], ends_of_rows - lengths, lengths]))
        self._runs.append(self.num_rows)
        self.num_rows += len(lines)
        self._offset = int(ends_of_rows[-1])
        self._blocks, self._held = [], 0


def memory_of(num_bytes: int, num_lines: int) -> int:
    """Memory that lines take while they are put in order: themselves, and a view and a few numbers for each."""
    return num_bytes + LINE_OVERHEAD * num_lines


def views_of(block: memoryview, ends: Ends) -> list[memoryview]:
    """Each line of a block where it lies."""
    bounds = ends.tolist()
    return [block[begin:end] for begin, end in zip([0, *bounds], bounds, strict=False)]


class Run:
    """One sorted run: its keys, and where its lines lie."""

    def __init__(self, path: Path, index: Hashes) -> None:
        """`index` is the stretch of NAME.index.npy that belongs to the run."""
        self._path, self._index = path, index

    def places(self, low: int, high: int) -> tuple[int, int]:
        """First and last place (exclusive) of the keys in [low, high)."""
        keys = self._index[KEY]
        last = len(keys) if high >= END_OF_KEYS else int(np.searchsorted(keys, np.uint64(high)))
        return int(np.searchsorted(keys, np.uint64(low))), last

    def num_bytes(self, places: tuple[int, int]) -> int:
        """Bytes of the lines at these places."""
        first, last = places
        if last <= first:
            return 0
        return int(self._index[OFFSET, last - 1] + self._index[LENGTH, last - 1] - self._index[OFFSET, first])

    def read(self, places: tuple[int, int]) -> tuple[Hashes, memoryview, Ends]:
        """Keys of the lines at these places, the lines themselves, and the place after each."""
        first, last = places
        with self._path.open("rb") as stream:
            stream.seek(int(self._index[OFFSET, first]))
            content = memoryview(stream.read(self.num_bytes(places)))
        return self._index[KEY, first:last], content, np.cumsum(self._index[LENGTH, first:last]).astype(np.int64)


def open_runs(directory: Path, names: Sequence[str]) -> list[Run]:
    """All runs of the shards `names`."""
    runs = []
    for name in names:
        index = np.load(directory / f"{name}.index.npy", mmap_mode="r")
        starts = [*np.load(directory / f"{name}.runs.npy").tolist(), index.shape[1]]
        for first, last in pairwise(starts):
            runs.append(Run(directory / f"{name}.rows", index[:, first:last]))
    return runs


def cut_keys(directory: Path, names: Sequence[str], documents_per_shard: int) -> list[int]:
    """The keys at which shards of the result begin, and END_OF_KEYS. Every shard but the last is full.

    Memory: a table of 2^20 counts, and the keys of the bins in which a shard begins.
    """
    paths = [directory / f"{name}.index.npy" for name in names]
    shift = np.uint64(64 - BIN_BITS)
    counts = np.zeros(1 << BIN_BITS, np.int64)
    for path in paths:
        bins = (np.load(path, mmap_mode="r")[KEY] >> shift).astype(np.int64)
        counts += np.bincount(bins, minlength=1 << BIN_BITS)
    upto = np.cumsum(counts)
    ranks = np.arange(0, int(upto[-1]), documents_per_shard, dtype=np.int64)
    bins_of_cuts = np.searchsorted(upto, ranks, side="right")
    wanted = np.zeros(1 << BIN_BITS, bool)
    wanted[bins_of_cuts] = True
    found = [np.zeros(0, np.uint64)]
    for path in paths:
        keys = np.load(path, mmap_mode="r")[KEY]
        found.append(keys[wanted[(keys >> shift).astype(np.int64)]])
    candidates = np.sort(np.concatenate(found))
    # Rank of the first candidate of each wanted bin, among all keys and among the candidates.
    first_in_candidates = np.cumsum(np.where(wanted, counts, 0)) - counts
    places = ranks - (upto - counts)[bins_of_cuts] + first_in_candidates[bins_of_cuts]
    cuts = [int(key) for key in candidates[places]]
    return [0, *cuts[1:], END_OF_KEYS]


def lines_between(runs: Sequence[Run], low: int, high: int, most_bytes: int) -> Iterator[list[memoryview]]:
    """The lines with keys in [low, high) in the order of their keys, in lists that take about `most_bytes` at most."""
    stretches = [(run, places) for run in runs if (places := run.places(low, high))[0] < places[1]]
    num_bytes = sum(run.num_bytes(places) for run, places in stretches)
    num_lines = sum(last - first for _, (first, last) in stretches)
    if memory_of(num_bytes, num_lines) > most_bytes and num_lines > 1:
        middle = (low + high) // 2
        yield from lines_between([run for run, _ in stretches], low, middle, most_bytes)
        yield from lines_between([run for run, _ in stretches], middle, high, most_bytes)
        return
    if not stretches:
        return
    keys, lines = [], []
    for run, places in stretches:
        own_keys, content, ends = run.read(places)
        keys.append(own_keys)
        lines += views_of(content, ends)
    yield [lines[place] for place in np.argsort(np.concatenate(keys)).tolist()]
