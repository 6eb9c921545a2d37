"""Is this a page? The Content-Type header where it says something, and the first bytes of the body always."""

from __future__ import annotations

import re
from functools import lru_cache

from tasks.scrape.fetch_outcome import FetchFailure, FetchReason

# Headers that servers send when they do not know (WHATWG MIME Sniffing, section 5.1)
MEANINGLESS_TYPES = ("", "unknown/unknown", "application/unknown", "*/*", "application/octet-stream", "text")

# First bytes of what is no text (WHATWG MIME Sniffing, section 6; PDF and compressed files among them)
BINARY_SIGNATURES = (
    b"%PDF-",
    b"%!PS-Adobe-",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"\xff\xd8\xff",
    b"PK\x03\x04",
    b"Rar!\x1a\x07",
    b"\x1f\x8b\x08",
    b"7z\xbc\xaf\x27\x1c",
    b"\x00\x00\x01\x00",
    b"OggS\x00",
    b"ID3",
    b"\x1aE\xdf\xa3",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    b"\x7fELF",
    b"wOFF",
    b"wOF2",
)
# A page may start with any of these tags, after white space (section 7.1, and the tags that came after it)
HTML_START = re.compile(
    rb"[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta|"
    rb"link|main|article)[> \t\n\r/])",
    re.IGNORECASE,
)
HTML_ANYWHERE = re.compile(rb"<(?:html|body)[> \t\n\r]", re.IGNORECASE)
XML_START = re.compile(rb"[\t\n\f\r ]*<\?xml", re.IGNORECASE)
SNIFFED_BYTES = 1445
UTF_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


@lru_cache(maxsize=1024)
def media_type(header: str) -> str:
    """The media type of a Content-Type header in lower case, without its parameters."""
    return header.split(";", 1)[0].split(",", 1)[0].strip().lower()


@lru_cache(maxsize=1024)
def is_meaningless(header: str) -> bool:
    """True when the header says nothing about the body."""
    kind = media_type(header)
    return kind in MEANINGLESS_TYPES or "/" not in kind


def check_header(header: str, accepted: tuple[str, ...]) -> None:
    """Raises FetchFailure when the header names a type that is not accepted; a meaningless one passes."""
    if not is_meaningless(header) and media_type(header) not in accepted:
        raise FetchFailure(FetchReason.CONTENT_TYPE, media_type(header)[:80])


def sniff(body: bytes) -> str:
    """The media type of a body by its first bytes: text/html, application/xhtml+xml, text/plain or a binary one."""
    head = body[:SNIFFED_BYTES]
    if head.startswith(BINARY_SIGNATURES) or head[:4] == b"RIFF" or head[4:8] == b"ftyp":
        return "application/octet-stream"
    if head.startswith(UTF_MARKS[1:]):
        # UTF-16: the markup is every other byte
        head = head[2:].replace(b"\0", b"")
    elif b"\0" in head:
        return "application/octet-stream"
    text = head.removeprefix(UTF_MARKS[0])
    if HTML_START.match(text):
        return "text/html"
    if XML_START.match(text):
        return "application/xhtml+xml" if HTML_ANYWHERE.search(text) else "text/xml"
    return "text/html" if HTML_ANYWHERE.search(text) else "text/plain"


def check_body(header: str, body: bytes, accepted: tuple[str, ...]) -> None:
    """Raises FetchFailure when the body is none of the accepted types.

    Without a meaningful header the first bytes decide; with one they only overrule it when they are no text at all.
    """
    if not body or body.isspace():
        raise FetchFailure(FetchReason.EMPTY_BODY)
    kind = sniff(body)
    if kind == "application/octet-stream" or (is_meaningless(header) and kind not in accepted):
        raise FetchFailure(FetchReason.CONTENT_TYPE, f"{kind} by its first bytes")
