"""The spool of one shard: what is finished is appended at once, so that a crash costs the pages in flight only.

A frame is a fixed header (magic, lengths, CRC-32), the outcome as JSON, and the page as it will stand in the WARC
file: a whole gzip member. After a crash the file is cut behind its last whole frame and goes on from there.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import orjson

from tasks.scrape.fetch_outcome import FetchOutcome, FetchReason, PageFacts

_FIELDS = tuple(field.name for field in dataclasses.fields(FetchOutcome))
NO_FACTS = PageFacts()
MAGIC = 0x50414745
_HEADER = struct.Struct("<IIIII")  # magic, index in the shard, bytes of JSON, bytes of the page, CRC-32 of both
Row = tuple[int, FetchOutcome, PageFacts, bytes]
"""A finished URL: its place in the shard, its outcome, and its page's facts and record (NO_FACTS and b"" for none)."""


@dataclass(frozen=True, slots=True)
class SpooledPage:
    """A finished URL: its outcome, the facts of its page and where its record lies in the spool."""

    outcome: FetchOutcome
    facts: PageFacts
    offset: int
    num_record_bytes: int


def _read_frames(path: Path) -> tuple[dict[int, SpooledPage], int]:
    """Whole frames by index, and the number of bytes they take."""
    found: dict[int, SpooledPage] = {}
    end = 0
    with path.open("rb") as stream:
        while len(head := stream.read(_HEADER.size)) == _HEADER.size:
            magic, index, num_json_bytes, num_record_bytes, checksum = _HEADER.unpack(head)
            if magic != MAGIC:
                break
            body = stream.read(num_json_bytes + num_record_bytes)
            if len(body) != num_json_bytes + num_record_bytes or zlib.crc32(body) != checksum:
                break
            row = orjson.loads(body[:num_json_bytes])
            facts = PageFacts(*row.pop("facts")) if "facts" in row else NO_FACTS
            outcome = FetchOutcome(**{**row, "reason": FetchReason(row["reason"])})
            found[index] = SpooledPage(outcome, facts, end + _HEADER.size + num_json_bytes, num_record_bytes)
            end += _HEADER.size + len(body)
    return found, end


class Spool:
    """Append-only file of finished pages; opening it finds what an earlier attempt finished."""

    def __init__(self, path: Path) -> None:
        """The file is made when it is not there; an unfinished frame at its end is cut off."""
        self.path = path
        path.touch()
        self.pages, end = _read_frames(path)
        self._file = path.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)
        self._end = end

    def append(self, rows: Sequence[Row]) -> None:
        """Keep finished URLs. When this returns the operating system has them: a killed process loses nothing."""
        pieces: list[bytes] = []
        for index, outcome, facts, record in rows:
            fields = {name: getattr(outcome, name) for name in _FIELDS}
            if record:
                fields["facts"] = tuple(facts)
            row = orjson.dumps(fields)
            checksum = zlib.crc32(record, zlib.crc32(row))
            pieces += (_HEADER.pack(MAGIC, index, len(row), len(record), checksum), row, record)
            place = self._end + _HEADER.size + len(row)
            self.pages[index] = SpooledPage(outcome, facts, place, len(record))
            self._end = place + len(record)
        self._file.write(b"".join(pieces))
        self._file.flush()

    def read_record(self, page: SpooledPage) -> bytes:
        """The gzip member of a finished page."""
        self._file.seek(page.offset)
        return self._file.read(page.num_record_bytes)

    def close(self) -> None:
        """The file stays."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
