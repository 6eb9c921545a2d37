"""Pages out of WARC files: our own, and other people's (Common Crawl)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fastwarc.warc import ArchiveIterator, WarcRecordType

from tasks.errors import CorruptInputError
from tasks.records import Page


def read_pages(path: Path) -> Iterator[Page]:
    """Every HTTP response of a WARC file. Content encodings are undone; other record types are passed over.

    Raises CorruptInputError, naming the file, when it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            records = ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=True, auto_decode="all")
            for record in records:
                http = record.http_headers
                final_url = (record.headers.get("WARC-Target-URI") or "").strip("<>")
                yield Page(
                    url=(record.headers.get("WARC-Requested-URI") or "").strip("<>") or final_url,
                    final_url=final_url,
                    status=http.status_code or 0,
                    content_type=http.get("Content-Type", "") or "",
                    body=record.reader.read(),
                    date=record.headers.get("WARC-Date", "") or "",
                )
    except (OSError, EOFError, ValueError) as error:
        raise CorruptInputError(f"{path}: the WARC file cannot be read ({error})") from error
