"""Rows on disk: pages and documents, and the readers and writers of document shards.

A document shard is JSON lines, one object a line, UTF-8, lines end in `\\n` alone (U+2028 and its like are
text), compressed by the file's suffix (.jsonl, .jsonl.gz, .jsonl.zst). A compressed file that ends too early
raises CorruptInputError: a part of it is never taken for the whole. A bad line is a reason, never an exception.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import orjson
import zstandard

from tasks.errors import CorruptInputError

READ_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 26
ZSTD_LEVEL = 3
DOCUMENT_SUFFIXES = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst")


class BadRow(StrEnum):
    """Why a line is no document."""

    BLANK_LINE = "blank_line"
    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_TEXT = "missing_text"
    TEXT_NOT_STRING = "text_not_string"
    INVALID_UTF8 = "invalid_utf8"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's answer about one record: kept, or dropped for a reason."""

    keep: bool
    reason: str = ""


@dataclass(slots=True)
class Page:
    """A fetched page with its HTTP facts. `body` is decoded from transfer and content encoding, not from charset."""

    url: str
    """The URL as it stood in the list."""
    final_url: str
    """Where the redirects ended."""
    status: int
    content_type: str
    """The Content-Type header, empty when there was none."""
    body: bytes
    date: str = ""
    """When it was fetched, RFC 3339, UTC."""


@dataclass(slots=True)
class Document:
    """Clean text with where it came from. Unknown fields of a user's own files travel in `extra`."""

    id: str
    """Unique in a corpus and stable: the same page has the same id in every run."""
    url: str
    text: str
    extra: dict[str, Any] = field(default_factory=dict)
    """title, date, language and whatever else the row held."""

    def to_json(self) -> bytes:
        """One line without its newline: id, url, text, then the other fields by name."""
        row: dict[str, Any] = {"id": self.id, "url": self.url, "text": self.text}
        for name in sorted(self.extra):
            row.setdefault(name, self.extra[name])
        return orjson.dumps(row)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a document file: a document, or the reason why it is none."""

    line_number: int
    """Counted from 1."""
    document: Document | None
    reason: str = ""
    repaired: bool = False
    """Half surrogate pairs in the line were replaced by U+FFFD."""
    raw: bytes = b""
    """The first bytes of a bad line, for the report."""


def replace_surrogates(text: str) -> str:
    """Half surrogate pairs become U+FFFD, whole pairs the character they stand for."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value


def parse_row(line: bytes, line_number: int, source: str, text_field: str = "text") -> Row:
    """Parse one JSON line. `source` names the file in the id of a document that has none of its own."""
    if not line.strip():
        return Row(line_number, None, BadRow.BLANK_LINE)
    repaired = False
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        # orjson is strict; the standard parser also takes half surrogate pairs and NaN. What both refuse is bad.
        try:
            value = _without_surrogates(json.loads(line))
            repaired = True
        except (ValueError, RecursionError):
            return Row(line_number, None, BadRow.INVALID_JSON, raw=line[:200])
    if not isinstance(value, dict):
        return Row(line_number, None, BadRow.NOT_AN_OBJECT, raw=line[:200])
    return row_of(value, line_number, source, text_field, repaired, line[:200])


def row_of(
    value: dict[str, Any],
    line_number: int,
    source: str,
    text_field: str = "text",
    repaired: bool = False,
    raw: bytes = b"",
) -> Row:
    """The document of one record's fields, which are used up, or the reason why it is none."""
    text = value.pop(text_field, None)
    if text is None:
        return Row(line_number, None, BadRow.MISSING_TEXT, raw=raw)
    if not isinstance(text, str):
        return Row(line_number, None, BadRow.TEXT_NOT_STRING, raw=raw)
    url = value.pop("url", "")
    identity = value.pop("id", None)
    document = Document(
        id=str(identity) if identity not in (None, "") else f"{source}:{line_number}",
        url=url if isinstance(url, str) else str(url),
        text=text,
        extra=value,
    )
    return Row(line_number, document, repaired=repaired)


def read_bytes(path: Path) -> Iterator[bytes]:
    """The decompressed content of a file in pieces; the suffix names the compression (.gz, .zst, .xz, none).

    Raises CorruptInputError, naming the file, when a compressed stream is damaged or ends too early.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as stream:
                while piece := stream.read(READ_BYTES):
                    yield piece
        elif path.suffix == ".xz":
            with lzma.open(path, "rb") as stream:
                while piece := stream.read(READ_BYTES):
                    yield piece
        elif path.suffix == ".zst":
            with path.open("rb") as stream:
                yield from zstd_frames(stream, zstandard.ZstdDecompressor())
        else:
            with path.open("rb") as stream:
                while piece := stream.read(READ_BYTES):
                    yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
        raise CorruptInputError(f"{path}: the compressed file is damaged or cut short ({error})") from error
    except OSError as error:
        raise CorruptInputError(f"{path}: cannot be read ({error})") from error


def zstd_frames(
    stream: IO[bytes], decompressor: zstandard.ZstdDecompressor, num_bytes: int = READ_BYTES
) -> Iterator[bytes]:
    """The content of all frames of a zstd stream in pieces, for `num_bytes` read at a time.

    zstandard's own stream reader takes a cut frame for a whole one. Raises EOFError for one, ZstdError for damage.
    """
    decoder = decompressor.decompressobj()
    started = False
    while raw := stream.read(num_bytes):
        while raw:
            started = True
            if piece := decoder.decompress(raw):
                yield piece
            raw = b""
            if decoder.eof:
                raw, started = decoder.unused_data, False
                decoder = decompressor.decompressobj()
    if started:
        raise EOFError("the last frame has no end")


def line_lists(path: Path) -> Iterator[list[bytes]]:
    """Lines without their `\\n`, in the lists in which they are read: the quick way to go through many.

    A last line without a `\\n` counts; a UTF-8 byte-order mark at the start is dropped. Of a line longer than
    MAX_LINE_BYTES only so much is given: it is no record, and must not fill the memory. Raises CorruptInputError for a
    damaged file.
    """
    held: list[bytes] = []
    num_held = 0
    is_first = True

    def whole(end: bytes) -> bytes:
        nonlocal num_held, is_first
        line = b"".join((*held, end))[:MAX_LINE_BYTES]
        held.clear()
        num_held = 0
        if is_first:
            line, is_first = line.removeprefix(b"\xef\xbb\xbf"), False
        return line

    for piece in read_bytes(path):
        lines = piece.split(b"\n")
        last = lines.pop()
        if lines:
            lines[0] = whole(lines[0])
            yield lines
        if last and num_held < MAX_LINE_BYTES:
            held.append(last)
            num_held += len(last)
    if rest := whole(b""):
        yield [rest]


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of `line_lists`, one by one."""
    for lines in line_lists(path):
        yield from lines


def source_name(path: Path) -> str:
    """The name that stands in ids of documents that have none of their own."""
    return path.name.split(".", 1)[0]


def read_rows(path: Path, text_field: str = "text") -> Iterator[Row]:
    """Every line of a document file as a Row, bad ones included. Raises CorruptInputError for a damaged file."""
    source = source_name(path)
    for line_number, line in enumerate(read_lines(path), start=1):
        yield parse_row(line, line_number, source, text_field)


class DocumentWriter:
    """Writes one zstd shard; the file appears under its name, whole, when the writer is closed without error."""

    def __init__(self, path: Path) -> None:
        """`path` must end in .jsonl.zst; its folder must exist."""
        self.path = path
        self.num_documents = 0
        self.num_text_bytes = 0
        self._temporary = path.with_name(path.name + ".tmp")
        self._file: IO[bytes] = self._temporary.open("wb")
        self._stream = zstandard.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(self._file, closefd=False)
        self._buffer = io.BytesIO()

    def write(self, document: Document) -> None:
        """Append one document. Raises UnicodeEncodeError for half surrogate pairs: repair comes first."""
        self._buffer.write(document.to_json())
        self._buffer.write(b"\n")
        self.num_documents += 1
        self.num_text_bytes += len(document.text.encode())
        if self._buffer.tell() >= READ_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._stream.write(self._buffer.getvalue())
        self._buffer = io.BytesIO()

    def __enter__(self) -> DocumentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            self._stream.close()  # type: ignore[no-untyped-call]
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self.path)
        else:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
