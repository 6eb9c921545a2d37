"""Which lines must be compared: equal digests and equal band keys, found part by part.

A part is a range of key values. It reads one row of every digests file, keeps what lies in its range and sorts that, so
a part takes BYTES_PER_KEY for each of its keys and there are as many parts as the memory setting asks for: at 1 GB a
part holds 16 million keys, and the 300 million keys of a band of 300 million documents are 18 parts that each read 2.4
GB. Parts are independent: they run in worker processes, and a finished one is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.digests import save
from tasks.clean.shingles import Hashes
from tasks.errors import StageError
from tasks.progress import StageReport

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NONE = -1
# Key, number, order, the sorted copies of the first two, and flags.
BYTES_PER_KEY = 64
# In a group of at most so many every pair is written down; a larger one stays a crowd (see tasks.clean.dedup).
MOST_PAIRED = 8
KEY_BYTES = 8
NUMBER_BITS = np.uint64(32)
MOST_LINES = 1 << 32
LOW_HALF = np.uint64(0xFFFFFFFF)


class DigestFiles:
    """The digests files of a corpus; lines are numbered through all of them in order."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises OSError when a file is missing, StageError when there are more lines than numbers."""
        # Rows are read and not mapped: pages of a mapped file would count as memory for as long as it is open.
        files = [np.load(path, mmap_mode="r") for path in paths]
        self._paths, self._begins = list(paths), [int(file.offset) for file in files]
        self.lengths = [int(file.shape[1]) for file in files]
        self.firsts: Numbers = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        """The number of the first line of each file, and that of all lines."""
        self.num_lines = sum(self.lengths)
        self.num_rows = int(files[0].shape[0]) if files else 0
        if self.num_lines >= MOST_LINES:
            raise StageError(f"dedup numbers at most {MOST_LINES:,} lines, and there are {self.num_lines:,}")

    def rows(self, place: int, first: int, number: int = 1) -> Hashes:
        """uint64 [number, lines]: rows of the file at that place."""
        length = self.lengths[place]
        begin = self._begins[place] + first * length * KEY_BYTES
        return np.fromfile(self._paths[place], np.uint64, number * length, offset=begin).reshape(number, length)

    def mask(self, first: int, test: Callable[[Hashes], Mask], number: int = 1) -> Mask:
        """The answers of `test`, which is given some rows of one file, for every line."""
        answers = (test(self.rows(place, first, number)) for place in range(len(self.lengths)))
        return np.concatenate([np.zeros(0, bool), *answers])

    def part(self, number: int, part: int, num_parts: int, chosen: Mask, more_rows: int = 0) -> tuple[Numbers, Hashes]:
        """Line numbers and rows `number` to `number + more_rows` of chosen lines whose first key is in the part."""
        low, high = part * (1 << 64) // num_parts, (part + 1) * (1 << 64) // num_parts
        numbers, keys, first = [np.zeros(0, np.int64)], [np.zeros((more_rows + 1, 0), np.uint64)], 0
        for place, length in enumerate(self.lengths):
            rows = self.rows(place, number, more_rows + 1)
            wanted = chosen[first : first + length] & (rows[0] >= np.uint64(low))
            if high < 1 << 64:
                wanted &= rows[0] < np.uint64(high)
            places = np.flatnonzero(wanted)
            numbers.append(places + first)
            keys.append(rows[:, places])
            first += length
        return np.concatenate(numbers), np.concatenate(keys, axis=1)


def parts_for(num_keys: int, memory_bytes: int) -> int:
    """How many parts keep one part within the memory."""
    return max(1, -(-num_keys * BYTES_PER_KEY // memory_bytes))


def first_of_equals(high: Hashes, low: Hashes) -> Numbers:
    """For each place the first with the same 128-bit digest, -1 for that first one itself."""
    first = np.full(len(high), NONE, np.int64)
    order = np.lexsort((low, high))  # stable: by place within equal digests
    if not len(order):
        return first
    begins = np.ones(len(order), bool)
    begins[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    leaders = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    first[order[~begins]] = leaders[~begins]
    return first


def equals_part(shard: tuple[list[str], str, int, int, int, str], directory: Path) -> tuple[list[str], StageReport]:
    """Write int64 [2, copies]: lines that equal an earlier one in a 128-bit digest, and the first of their kind.

    `shard` has the digests files, the file of the mask of lines that count, row, part, number of parts, a name.
    """
    files, mask, row, part, num_parts, name = shard
    digests = DigestFiles([Path(file) for file in files])
    numbers, keys = digests.part(row, part, num_parts, np.load(mask, mmap_mode="r"), more_rows=1)
    first = first_of_equals(keys[0], keys[1])
    copies = np.flatnonzero(first != NONE)
    output = f"{name}.npy"
    save(directory / output, np.stack([numbers[copies], numbers[first[copies]]]))
    return [output], StageReport(unit="documents")


def band_part(shard: tuple[list[str], str, int, int, int, str], directory: Path) -> tuple[list[str], StageReport]:
    """Write what shares a band key: NAME.pairs.npy (line, earlier line) and NAME.crowds.npy (line, crowd).

    Both are sorted uint64 with 32 bits for each number. `shard` is as in `equals_part`.
    """
    files, mask, row, part, num_parts, name = shard
    digests = DigestFiles([Path(file) for file in files])
    numbers, keys = digests.part(row, part, num_parts, np.load(mask, mmap_mode="r"))
    pairs, crowds = groups_of(numbers, keys[0])
    outputs = [f"{name}.pairs.npy", f"{name}.crowds.npy"]
    save(directory / outputs[0], pairs)
    save(directory / outputs[1], crowds)
    return outputs, StageReport(unit="documents")


def pack(first: Numbers, second: Numbers) -> Hashes:
    """Two numbers of 32 bits in one, which sorts by the first."""
    return (first.astype(np.uint64) << NUMBER_BITS) | second.astype(np.uint64)


def groups_of(numbers: Numbers, keys: Hashes) -> tuple[Hashes, Hashes]:
    """Sorted pairs (line, earlier line) of small groups of equal keys, and entries (line, crowd) of the others."""
    order = np.argsort(keys)
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    shared = np.zeros(len(ordered), bool)
    shared[1:] = same
    shared[:-1] |= same
    places = order[shared]
    values = ordered[shared]
    begins = np.ones(len(values), bool)
    begins[1:] = values[1:] != values[:-1]
    group = np.cumsum(begins) - 1
    members = numbers[places]
    members = members[np.lexsort((members, group))]
    size = np.bincount(group)[group] if len(group) else group
    start = np.flatnonzero(begins)[group] if len(group) else group
    small = size <= MOST_PAIRED
    pairs = [np.zeros(0, np.uint64)]
    for distance in range(1, MOST_PAIRED):
        later = np.flatnonzero(small & (np.arange(len(members)) - start >= distance))
        pairs.append(pack(members[later], members[later - distance]))
    crowd = np.unique(group[~small], return_inverse=True)[1].astype(np.int64)
    return np.sort(np.concatenate(pairs)), np.sort(pack(members[~small], crowd))
