"""Small WARC files for tests, made by hand so that they can be wrong where a test wants it."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

TEXT = (
    "The harbour master opened the gate at dawn and counted every boat twice before the tide turned.",
    "By noon the market was full of people, and nobody remembered who had lost the small brass key.",
    "In the evening the crew of the last ferry told the same story again to anyone who would listen.",
)


def article(title: str, paragraphs: Iterable[str] = TEXT, head: str = "") -> str:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (
        f'<!DOCTYPE html><html lang="en-GB"><head><title>{title}</title>{head}</head><body><nav><a href="/">menu</a></nav>'
        f"<article><h1>{title}</h1>{body}</article><footer>imprint</footer></body></html>"
    )


def response(body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK", headers: str = "") -> bytes:
    line = f"Content-Type: {kind}\r\n" if kind else ""
    return f"HTTP/1.1 {status}\r\n{line}{headers}\r\n".encode() + body


def record(url: str, block: bytes, kind: str = "response", requested: str = "") -> bytes:
    extra = f"WARC-Requested-URI: {requested}\r\n" if requested else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n{extra}"
        f"Content-Type: application/http;msgtype={kind}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def write_warc(path: Path, records: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(gzip.compress(item, mtime=0) if path.suffix == ".gz" else item for item in records))
    return path
