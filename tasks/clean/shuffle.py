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

from tasks.clean.shingles import Hashes, mix
from tasks.records import READ_BYTES, DocumentWriter

ROW_BITS = 40
BIN_BITS = 20
END_OF_KEYS = 1 << 64
KEY, OFFSET, LENGTH = 0, 1, 2
Places = npt.NDArray[np.int64]


def order_keys(seed: int, shard: int, first_row: int, num_rows: int) -> Hashes:
    """uint64 keys of consecutive rows. No two rows have the same: every step is a bijection of (shard, row)."""
    rows = np.arange(first_row, first_row + num_rows, dtype=np.uint64) + np.uint64(shard << ROW_BITS)
    return mix(mix(rows) ^ mix(np.array([seed], np.uint64)))


class RunWriter:
    """Collects lines of one input shard and writes them in runs sorted by key.

    NAME.rows has the lines one after another; NAME.index.npy is uint64 [3, rows]: key, offset, length in the order
    of NAME.rows; NAME.runs.npy has the first place of each run in it.
    """

    def __init__(self, directory: Path, name: str, seed: int, shard: int, run_bytes: int) -> None:
        """`run_bytes`: lines held in memory before a run is written."""
        self.names = [f"{name}.rows", f"{name}.index.npy", f"{name}.runs.npy"]
        self._directory, self._seed, self._shard, self._run_bytes = directory, seed, shard, run_bytes
        self._stream = (directory / self.names[0]).open("wb")
        self._lines: list[bytes] = []
        self._held = self._offset = self._num_rows = 0
        self._index: list[Hashes] = []
        self._runs: list[int] = []

    def add(self, line: bytes) -> None:
        """One more row."""
        self._lines.append(line)
        self._held += len(line)
        if self._held >= self._run_bytes:
            self._flush()

    def close(self) -> None:
        """Write the last run and the index."""
        self._flush()
        self._stream.close()
        np.save(self._directory / self.names[1], np.concatenate([np.zeros((3, 0), np.uint64), *self._index], axis=1))
        np.save(self._directory / self.names[2], np.array(self._runs, np.int64))

    def _flush(self) -> None:
        if not self._lines:
            return
        keys = order_keys(self._seed, self._shard, self._num_rows, len(self._lines))
        order = np.argsort(keys)
        lengths = np.array([len(line) for line in self._lines], np.uint64)[order]
        ends = np.cumsum(lengths) + np.uint64(self._offset)
        self._stream.write(b"".join([self._lines[place] for place in order.tolist()]))
        self._index.append(np.stack([keys[order], ends - lengths, lengths]))
        self._runs.append(self._num_rows)
        self._num_rows += len(self._lines)
        self._offset = int(ends[-1])
        self._lines, self._held = [], 0


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

    def read(self, places: tuple[int, int]) -> tuple[Hashes, Hashes, bytes]:
        """Keys and lengths of the lines at these places, and the lines themselves."""
        first, last = places
        with self._path.open("rb") as stream:
            stream.seek(int(self._index[OFFSET, first]))
            content = stream.read(self.num_bytes(places))
        return self._index[KEY, first:last], self._index[LENGTH, first:last], content


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


def lines_between(runs: Sequence[Run], low: int, high: int, most_bytes: int) -> Iterator[bytes]:
    """The lines with keys in [low, high) in the order of their keys, at most about `most_bytes` in memory at a time."""
    stretches = [(run, places) for run in runs if (places := run.places(low, high))[0] < places[1]]
    num_bytes = sum(run.num_bytes(places) for run, places in stretches)
    num_lines = sum(last - first for _, (first, last) in stretches)
    if num_bytes > most_bytes and num_lines > 1:
        middle = (low + high) // 2
        yield from lines_between([run for run, _ in stretches], low, middle, most_bytes)
        yield from lines_between([run for run, _ in stretches], middle, high, most_bytes)
        return
    if not stretches:
        return
    keys, lengths, contents = zip(*(run.read(places) for run, places in stretches), strict=True)
    content = b"".join(contents)
    all_lengths = np.concatenate(lengths).astype(np.int64)
    ends = np.cumsum(all_lengths)
    order = np.argsort(np.concatenate(keys))
    for first, last in zip((ends - all_lengths)[order].tolist(), ends[order].tolist(), strict=True):
        yield content[first:last]


class LineWriter(DocumentWriter):
    """A document writer for rows that are JSON lines already."""

    def write_line(self, line: bytes) -> None:
        """Append one row without its newline. The text's bytes are not counted."""
        self._buffer.write(line)
        self._buffer.write(b"\n")
        self.num_documents += 1
        if self._buffer.tell() >= READ_BYTES:
            self._flush()
