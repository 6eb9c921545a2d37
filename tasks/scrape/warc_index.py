"""The index of WARC files: CDXJ, one line a page, sorted (the format of pywb and of Common Crawl's index).

    com,example)/path?x=1 20261201031822 {"url": ..., "mime": ..., "status": ..., "digest": ..., "length": ..., ...}

The key is the URL in SURT form (host labels reversed, everything in lower case, a leading `www.` left out, query
parameters sorted), the number the time of the page, and the JSON says where the record lies: bytes `offset` to
`offset + length` of `filename` are one gzip member. `etag` and `last-modified` are what a later crawl asks with.
"""

from __future__ import annotations

import contextlib
import heapq
import mmap
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import orjson
from yarl import URL

from tasks.errors import CorruptInputError

MERGED_AT_ONCE = 200
_WWW = re.compile(r"www\d*\.")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where a page lies, and what its server called its version."""

    url: str
    """The URL the redirects ended at."""
    date: str
    """RFC 3339, UTC."""
    mime: str
    status: int
    digest: str
    """Of the body, "sha1:" and base32."""
    offset: int
    length: int
    """Bytes of the gzip member."""
    file_name: str
    etag: str = ""
    last_modified: str = ""

    def line(self) -> bytes:
        """The entry as it stands in the index, without its newline."""
        fields: dict[str, str] = {
            "url": self.url,
            "mime": self.mime,
            "status": str(self.status),
            "digest": self.digest,
            "length": str(self.length),
            "offset": str(self.offset),
            "filename": self.file_name,
        }
        if self.etag:
            fields["etag"] = self.etag
        if self.last_modified:
            fields["last-modified"] = self.last_modified
        time = re.sub(r"\D", "", self.date)[:14]
        return f"{surt(self.url)} {time} ".encode() + orjson.dumps(fields)


def surt(url: str) -> str:
    """The sort key of a URL, ASCII without blanks. URLs that lead to one page mostly share it, others sometimes do."""
    parsed = URL(url)
    host = (parsed.raw_host or "").lower().rstrip(".")
    host = _WWW.sub("", host, count=1) if _WWW.match(host) and host.count(".") > 1 else host
    is_number = ":" in host or host.replace(".", "").isdigit()
    name = host if is_number else ",".join(reversed(host.split(".")))
    port = "" if parsed.port in (None, {"http": 80, "https": 443}.get(parsed.scheme)) else f":{parsed.port}"
    path = parsed.raw_path.lower()
    if len(path) > 1:
        path = path.rstrip("/") or "/"
    query = "&".join(sorted(parsed.raw_query_string.lower().split("&"))) if parsed.raw_query_string else ""
    return f"{name}{port}){path}" + (f"?{query}" if query else "")


def write_part(path: Path, entries: Iterable[IndexEntry]) -> None:
    """Write the sorted index of one WARC file."""
    lines = sorted(entry.line() + b"\n" for entry in entries)
    path.write_bytes(b"".join(lines))


def merge_parts(parts: Sequence[Path], scratch: Path) -> Iterator[bytes]:
    """The lines of sorted parts in order, whatever their number; `scratch` takes what is merged on the way."""
    level = 0
    while len(parts) > MERGED_AT_ONCE:
        merged: list[Path] = []
        for number in range(0, len(parts), MERGED_AT_ONCE):
            target = scratch / f"merged-{level}-{number:08d}.cdxj.tmp"
            with target.open("wb") as stream:
                stream.writelines(_merge(parts[number : number + MERGED_AT_ONCE]))
            merged.append(target)
        parts, level = merged, level + 1
    yield from _merge(parts)


def _merge(parts: Sequence[Path]) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        yield from heapq.merge(*(stack.enter_context(part.open("rb")) for part in parts))


class WarcIndex:
    """An index on disk, looked up by binary search. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens the file; nothing of it is read into memory."""
        self._path = path
        self._file = path.open("rb")
        empty = path.stat().st_size == 0
        self._bytes: mmap.mmap | bytes = b"" if empty else mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def find(self, url: str) -> IndexEntry | None:
        """The newest entry of exactly this URL. Raises CorruptInputError for a line that is none."""
        key = surt(url).encode() + b" "
        place = self._first(key)
        found: IndexEntry | None = None
        while (line := self._line(place)).startswith(key):
            entry = self._entry(line)
            if entry.url == url and (found is None or entry.date >= found.date):
                found = entry
            place += len(line)
        return found

    def _line(self, place: int) -> bytes:
        end = self._bytes.find(b"\n", place)
        return self._bytes[place : len(self._bytes) if end < 0 else end + 1]

    def _first(self, key: bytes) -> int:
        """The place of the first line that is not less than `key`."""
        low, high = 0, len(self._bytes)  # both are starts of lines, or the end
        while low < high:
            start = self._bytes.rfind(b"\n", low, (low + high) // 2) + 1 or low
            line = self._line(start)
            if line[: len(key)] < key:
                low = start + len(line)
            else:
                high = start
        return low

    def _entry(self, line: bytes) -> IndexEntry:
        try:
            _, time, text = line.decode().split(" ", 2)
            fields = orjson.loads(text)
            date = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:{time[12:14]}Z"
            return IndexEntry(
                url=fields["url"],
                date=date,
                mime=fields.get("mime", ""),
                status=int(fields["status"]),
                digest=fields.get("digest", ""),
                offset=int(fields["offset"]),
                length=int(fields["length"]),
                file_name=fields["filename"],
                etag=fields.get("etag", ""),
                last_modified=fields.get("last-modified", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptInputError(f"{self._path}: a line of the index cannot be read ({error})") from error

    def close(self) -> None:
        """Let the file go."""
        if isinstance(self._bytes, mmap.mmap):
            self._bytes.close()
        self._file.close()

    def __enter__(self) -> WarcIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
