"""Rows as the lines they are: read many at a time, judged once, copied without being parsed again.

A line that our own writer wrote goes from stage to stage as it is; anything else is read as a document first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import orjson
import zstandard

from tasks.records import BadRow, Document, parse_row, read_bytes

# Between stages: half the time of level 3 for a seventh more bytes.
ZSTD_LEVEL = 1
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OWN_START, OWN_END = b'{"id":"', 0x7D
SHORTEST_LINE = len(OWN_START) + len(b"\n") + 1
NEWLINE = 0x0A
MOST_VECTORS = 512
WRITTEN_AT_ONCE = 1 << 20

AS_IT_IS, REWRITTEN = 0, 1
"""States of a line: copied, or read as a document and written anew. What is above is no document: a bad row."""
BAD_ROWS = tuple(BadRow)


def line_blocks(path: Path) -> Iterator[memoryview]:
    """The content of a file in blocks of whole lines, a newline after each; a byte-order mark at the start is dropped.

    Raises CorruptInputError for a damaged file.
    """
    rest: list[bytes | memoryview] = []
    first = True
    for piece in read_bytes(path):
        if first:
            piece = b"".join((*rest, piece))
            if len(piece) < len(BYTE_ORDER_MARK):
                rest = [piece]
                continue
            piece, rest, first = piece.removeprefix(BYTE_ORDER_MARK), [], False
        after, view = piece.rfind(b"\n") + 1, memoryview(piece)
        begin = 0
        if after and rest:
            begin = piece.index(b"\n") + 1
            yield memoryview(b"".join((*rest, view[:begin])))
            rest = []
        if begin < after:
            yield view[begin:after]
        if after < len(piece):
            rest.append(view[after:])
    if last := b"".join(rest):
        yield memoryview(last if last.endswith(b"\n") else last + b"\n")


def line_ends(block: memoryview) -> npt.NDArray[np.int64]:
    """The place after each newline."""
    return np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE) + 1


def all_as_they_are(block: memoryview, ends: npt.NDArray[np.int64]) -> bool:
    """Whether every line of a block looks like one that our own writer wrote."""
    codes = np.frombuffer(block, np.uint8)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    if np.min(ends - starts, initial=SHORTEST_LINE) < SHORTEST_LINE:
        return False
    loads = np.ndarray((len(codes) - 7,), "<u8", block, 0, (1,))
    right_start = (loads[starts] & np.uint64((1 << 56) - 1)) == np.frombuffer(OWN_START + b"\0", "<u8")[0]
    return bool(right_start.all()) and bool((codes[ends - 2] == OWN_END).all())


def read_text(line: bytes, line_number: int, source: str) -> tuple[int, str, str]:
    """State, text and URL of a line; `source` is the file's name without suffixes. A bad row has neither."""
    if line.startswith(OWN_START) and line.endswith(b"}"):
        try:
            value: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = {}
        text, url = value.get("text"), value.get("url")
        if type(text) is str and type(url) is str and value["id"]:
            return AS_IT_IS, text, url
    row = parse_row(line, line_number, source)
    if row.document is None:
        return REWRITTEN + 1 + BAD_ROWS.index(BadRow(row.reason)), "", ""
    return REWRITTEN, row.document.text, row.document.url


def bad_reason(state: int) -> BadRow | None:
    """Why a line of that state is no document; None for one that is."""
    return None if state <= REWRITTEN else BAD_ROWS[state - REWRITTEN - 1]


def document_of(line: bytes, line_number: int, source: str) -> Document:
    """The document of a line whose state says that it is one."""
    document = parse_row(line, line_number, source).document
    assert document is not None, "the state was read from the same line"
    return document


class LineWriter:
    """Writes one shard of lines; the file appears under its name, whole, when the writer is closed without error.

    A name that ends in .zst is compressed.
    """

    def __init__(self, path: Path, level: int = ZSTD_LEVEL) -> None:
        """The folder must exist."""
        self.path = path
        self.num_documents = 0
        self._temporary = path.with_name(path.name + ".tmp")
        self._file: IO[bytes] = self._temporary.open("wb", buffering=0)
        self._stream: Any = self._file
        if path.suffix == ".zst":
            self._stream = zstandard.ZstdCompressor(level=level).stream_writer(self._file, closefd=False)

    def write_lines(self, lines: Sequence[bytes]) -> None:
        """Append rows without their newlines."""
        if lines:
            self.write_block(b"\n".join((*lines, b"")), len(lines))

    def write_block(self, block: bytes | memoryview, num_lines: int) -> None:
        """Append rows that are one block already, each with its newline."""
        view = memoryview(block)
        while len(view):
            view = view[self._stream.write(view) if self._stream is self._file else self._compress(view) :]
        self.num_documents += num_lines

    def write_views(self, views: Sequence[memoryview]) -> None:
        """Append rows, each with its newline, without copying them together where nothing is compressed."""
        if self._stream is self._file:
            write_vectors(self._file.fileno(), views)
        else:
            first = held = 0
            for place, view in enumerate(views, start=1):
                held += len(view)
                if held >= WRITTEN_AT_ONCE or place == len(views):
                    self._stream.write(b"".join(views[first:place]))
                    first, held = place, 0
        self.num_documents += len(views)

    def _compress(self, view: memoryview) -> int:
        self._stream.write(view)
        return len(view)

    def __enter__(self) -> LineWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
            return
        if self._stream is not self._file:
            self._stream.close()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self.path)


def write_vectors(descriptor: int, views: Sequence[memoryview]) -> None:
    """Write pieces of memory one after another to a file, as they lie."""
    for first in range(0, len(views), MOST_VECTORS):
        some = list(views[first : first + MOST_VECTORS])
        left = sum(map(len, some)) - os.writev(descriptor, some)
        if left:  # a signal, or a file system that takes less at once
            rest = memoryview(b"".join(some))[-left:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
