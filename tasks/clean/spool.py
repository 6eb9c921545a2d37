"""Lines that are kept as plain text on disk for as long as a stage runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt


class Spool:
    """The lines of one file as plain text on disk: any of them, or a run of them, without reading others."""

    def __init__(self, path: Path, ends: npt.NDArray[np.uint64]) -> None:
        """`ends`: the place after each line's newline. Raises OSError when the file is missing."""
        self._ends = np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
        # An empty file cannot be mapped.
        self._bytes = np.memmap(path, np.uint8, "r") if self._ends[-1] else np.zeros(0, np.uint8)

    def line(self, number: int) -> bytes:
        """One line without its newline; lines count from 0."""
        return self._bytes[self._ends[number] : self._ends[number + 1] - 1].tobytes()

    def block(self, first: int, last: int) -> memoryview:
        """The lines `first` to `last` (exclusive), each with its newline."""
        return self._bytes[self._ends[first] : self._ends[last]].data
