"""Pages of an earlier crawl: what to ask their servers with, and the stored page when nothing changed."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import TracebackType

from fastwarc.warc import ArchiveIterator, WarcRecordType

from tasks.scrape.fetch_config import INDEX_NAME
from tasks.scrape.fetch_outcome import FetchedPage
from tasks.scrape.warc_index import IndexEntry, WarcIndex
from tasks.scrape.warc_writer import sha1_digest

MAX_STORED_FIELD_BYTES = 1 << 20
_VALIDATOR = re.compile(r"[\x20-\x7e\x80-\xff]+")


class EarlierCrawl:
    """The folder of an earlier fetch. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Opens the index; WARC files are opened when a page is taken."""
        self._folder = folder
        self._index = WarcIndex(folder / INDEX_NAME)

    def find(self, url: str) -> IndexEntry | None:
        """The newest stored page of exactly this URL, if its server gave it a version or a date."""
        entry = self._index.find(url)
        return entry if entry is not None and conditions(entry) else None

    def page(self, entry: IndexEntry) -> FetchedPage | None:
        """The stored page, with the date of its own fetching; None when it is not there in its full length."""
        try:
            with (self._folder / Path(entry.file_name).name).open("rb") as stream:
                stream.seek(entry.offset)
                member = stream.read(entry.length)
            for record in ArchiveIterator(io.BytesIO(member), WarcRecordType.response, parse_http=False):
                page = _page(entry, record.reader.read())
                if page is not None and sha1_digest(page.body) == entry.digest:
                    return page
        except (OSError, ValueError):
            return None
        return None

    def close(self) -> None:
        """Let the index go."""
        self._index.close()

    def __enter__(self) -> EarlierCrawl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def conditions(entry: IndexEntry) -> dict[str, str]:
    """Header fields that ask for a page only if it is another one (RFC 9110, sections 13.1.2 and 13.1.3)."""
    asked = (("If-None-Match", entry.etag), ("If-Modified-Since", entry.last_modified))
    return {name: value for name, value in asked if _VALIDATOR.fullmatch(value)}


def _page(entry: IndexEntry, block: bytes) -> FetchedPage | None:
    """The page out of a record as warc_writer writes it: one line a field."""
    head, blank, body = block.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    _, status, text = (*first.split(b" ", 2), b"", b"")[:3]
    if not blank or not status.isdigit():
        return None
    fields = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    # the length of the stored body is written anew; the one that was received has another name by now
    fields = [(name, value) for name, value in fields if name.lower() != b"content-length"]
    return FetchedPage(entry.url, entry.date, int(status), text.decode("latin-1"), fields, body)
