"""Pages out of WARC files: our own, and other people's (Common Crawl, wget, Heritrix, warcio)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from tasks.errors import CorruptInputError
from tasks.records import Page, read_bytes
from tasks.scrape.body_decoder import BodyDecoder
from tasks.scrape.fetch_outcome import FetchFailure
from tasks.scrape.warc_zstd import ZstdWarc

REQUESTED_URL_FIELD = "WARC-Requested-URI"
MAX_DECODED_BYTES = 64 << 20
CHECKED_BYTES = 1 << 20
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})\b")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"\s*([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
# First bytes of an encoded body. Crawls often store the body decoded below headers that say otherwise.
ENCODED_STARTS = {"gzip": (b"\x1f\x8b",), "x-gzip": (b"\x1f\x8b",), "deflate": (b"\x78\x01", b"\x78\x9c", b"\x78\xda")}


def read_pages(path: Path) -> Iterator[Page]:
    """Every HTTP response of a WARC file, in order. Content and transfer encodings are undone where they still are.

    Requests, metadata and revisits are passed over. A response that cannot be read has status 0. Raises
    CorruptInputError, naming the file, when the file is damaged or cut short: no part of it is taken for the whole.
    """
    _check_whole(path)
    try:
        with ZstdWarc(path) if path.suffix == ".zst" else path.open("rb") as stream:
            source = cast(BinaryIO, stream)  # read and tell are all that is asked of it
            for record in ArchiveIterator(source, record_types=WarcRecordType.response, parse_http=False):
                block = record.reader.read()
                if len(block) < record.content_length or "Content-Length" not in record.headers:
                    raise CorruptInputError(f"{path}: the record of {_target(record)} is cut short")
                yield _page_of(record, block)
    except (OSError, EOFError, ValueError) as error:
        raise CorruptInputError(f"{path}: the WARC file cannot be read ({error})") from error


def _check_whole(path: Path) -> None:
    """A cut gzip member would look like the end of the file; reading it through shows it. Costs 2 ms a megabyte."""
    if path.suffix == ".gz":
        for _ in read_bytes(path):
            pass
    elif path.suffix == ".zst":
        with ZstdWarc(path) as stream:
            while stream.read(CHECKED_BYTES):
                pass


def _target(record: WarcRecord) -> str:
    return (record.headers.get("WARC-Target-URI") or "").strip().removeprefix("<").removesuffix(">")


def _page_of(record: WarcRecord, block: bytes) -> Page:
    final_url = _target(record)
    requested = (record.headers.get(REQUESTED_URL_FIELD) or "").strip()
    page = Page(requested or final_url, final_url, 0, "", b"", record.headers.get("WARC-Date") or "")
    status = _STATUS.match(block)
    end = _HEAD_END.search(block)
    if status is None or end is None:
        return page
    headers = _headers(block[: end.start()])
    body = _decoded(headers, block[end.end() :])
    if body is not None:
        page.status, page.body = int(status.group(1)), body
        page.content_type = headers.get("content-type", "")
    return page


def _headers(head: bytes) -> dict[str, str]:
    """Headers by name in lower case; the first of several counts."""
    found: dict[str, str] = {}
    for line in head.split(b"\n")[1:]:
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
    return found


def _decoded(headers: dict[str, str], body: bytes) -> bytes | None:
    """The body without its transfer and content encoding; None when it is not whole or in no known encoding."""
    if "chunked" in headers.get("transfer-encoding", "").lower() and _CHUNK.match(body):
        joined = _without_chunks(body)
        if joined is None:
            return None
        body = joined
    encoding = headers.get("content-encoding", "").lower()
    name = encoding.rpartition(",")[2].strip()
    if name in ("", "identity"):
        return body
    if name in ENCODED_STARTS and not body.startswith(ENCODED_STARTS[name]) and _is_text(body):
        return body
    try:
        decoder = BodyDecoder(encoding, MAX_DECODED_BYTES, MAX_DECODED_BYTES)
        decoder.feed(body)
        return decoder.finish()
    except FetchFailure:
        return body if name not in ENCODED_STARTS and _is_text(body) else None


def _is_text(body: bytes) -> bool:
    return body[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"


def _without_chunks(body: bytes) -> bytes | None:
    """RFC 9112 section 7.1; None when the last chunk is missing."""
    parts: list[bytes] = []
    place = 0
    while (match := _CHUNK.match(body, place)) is not None:
        size = int(match.group(1), 16)
        if size == 0:
            return b"".join(parts)
        place = match.end() + size
        if place > len(body):
            return None
        parts.append(body[match.end() : place])
    return None
