"""All lines of a corpus in memory, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.lines import all_as_they_are, line_blocks, line_ends
from tasks.clean.shuffle import Ends, memory_of, order_keys
from tasks.progress import StageReport, add_reports
from tasks.records import parse_row, source_name


def own_blocks(source: Path, report: StageReport) -> Iterator[tuple[memoryview, Ends]]:
    """Blocks of a file's lines as our own writer writes them, and the place after each line; all lines are counted.

    What our own writer wrote goes through as it is; anything else is read as a document first.
    """
    for block in line_blocks(source):
        ends = line_ends(block)
        if all_as_they_are(block, ends):
            report.num_in += len(ends)
        else:
            block = memoryview(_rewritten(bytes(block), report, source))
            ends = line_ends(block)
        report.num_out += len(ends)
        yield block, ends


def _rewritten(block: bytes, report: StageReport, source: Path) -> bytes:
    """The block's documents as our writer writes them; what is none is dropped. Counts all lines."""
    lines = []
    for line_number, line in enumerate(block[:-1].split(b"\n"), start=report.num_in + 1):
        report.num_in += 1
        row = parse_row(line, line_number, source_name(source))
        if row.document is None:
            report.drop(row.reason, f"{source.name}:{line_number}")
        else:
            lines.append(row.document.to_json())
    return b"\n".join((*lines, b"")) if lines else b""


@dataclass(frozen=True)
class HeldLines:
    """Lines in memory, and the order in which they are to be written."""

    blocks: Sequence[memoryview]
    block_of: npt.NDArray[np.int64]
    ends: Ends
    lengths: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    report: StageReport

    def views(self, first: int, last: int) -> list[memoryview]:
        """The lines at these places of the order, each where it lies."""
        chosen = self.order[first:last]
        ends = self.ends[chosen]
        places = zip(self.block_of[chosen].tolist(), (ends - self.lengths[chosen]).tolist(), ends.tolist(), strict=True)
        return [self.blocks[block][begin:end] for block, begin, end in places]


class _TooMany(Exception):
    """The lines do not fit. Caught by the function that reads them."""


def hold_lines(paths: Sequence[Path], seed: int, most_bytes: int, workers: int) -> HeldLines | None:
    """Read all lines, by as many threads as there are workers, and put them in order; None when they do not fit."""
    held = 0

    def read(numbered: tuple[int, Path]) -> tuple[list[memoryview], list[Ends], npt.NDArray[np.uint64], StageReport]:
        nonlocal held
        report, blocks, all_ends = StageReport(unit="documents"), [], []
        for block, ends in own_blocks(numbered[1], report):
            held += memory_of(len(block), len(ends))
            if held > most_bytes:
                raise _TooMany
            blocks.append(block)
            all_ends.append(ends)
        return blocks, all_ends, order_keys(seed, numbered[0], 0, report.num_out), report

    try:
        with ThreadPoolExecutor(workers) as pool:
            read_files = list(pool.map(read, enumerate(paths)))
    except _TooMany:
        return None
    blocks = [block for one in read_files for block in one[0]]
    ends = [array for one in read_files for array in one[1]]
    nothing = np.zeros(0, np.int64)
    return HeldLines(
        blocks,
        np.repeat(np.arange(len(blocks)), [len(array) for array in ends]),
        np.concatenate([nothing, *ends]),
        np.concatenate([nothing, *(np.diff(array, prepend=0) for array in ends)]),
        np.argsort(np.concatenate([np.zeros(0, np.uint64), *(one[2] for one in read_files)])),
        add_reports([one[3] for one in read_files], "documents"),
    )
