"""WARC/1.1 records (ISO 28500:2017), one gzip member each, with the same bytes for the same page.

The body of a response is stored decoded from transfer and content encoding. The headers are stored as received,
but for those that described the encoding: they get the prefix `X-Archive-Orig-`, and Content-Length tells the
length of what is stored. `WARC-Target-URI` is the URL the redirects ended at, `WARC-Requested-URI` the one asked for.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

from tasks.scrape.fetch_outcome import FetchedPage

GZIP_LEVEL = 4
# magic, deflate, no flags, no time, no extra flags, unknown system: written by hand, because the byte for the
# system is not the same in all versions of zlib and Python
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
REQUESTED_URI_FIELD = "WARC-Requested-URI"
ENCODING_HEADERS = (b"content-encoding", b"transfer-encoding", b"content-length")
BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
BASE32_PAIRS = [first + second for first in BASE32 for second in BASE32]
SHA1_SHIFTS = range(150, -10, -10)


def gzip_member(data: bytes) -> bytes:
    """`data` as one gzip member (RFC 1952); the bytes depend on the data and on zlib alone."""
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = compressor.compress(data) + compressor.flush()
    return GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def sha1_digest(*parts: bytes) -> str:
    """The digest of WARC-Payload-Digest: "sha1:" and base32."""
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    # 160 bits are 16 pairs of base32 characters (RFC 4648); base64.b32encode takes ten times as long
    number = int.from_bytes(digest.digest(), "big")
    return "sha1:" + "".join([BASE32_PAIRS[(number >> shift) & 1023] for shift in SHA1_SHIFTS])


def _record_id(name: str) -> str:
    """A WARC record id that follows from `name`: a UUID of version 8 (RFC 9562), its bits from sha256."""
    digits = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}>"


def _record(fields: Sequence[tuple[str, str]], *block: bytes) -> bytes:
    length = sum(len(part) for part in block)
    head = "".join(f"{name}: {value}\r\n" for name, value in (*fields, ("Content-Length", str(length))))
    return b"".join((b"WARC/1.1\r\n", head.encode(), b"\r\n", *block, b"\r\n\r\n"))


def warcinfo_record(file_name: str, date: str, user_agent: str, robots: str) -> bytes:
    """The first record of a file: who made it and how. `date` is RFC 3339, UTC."""
    lines = {
        "software": "url2lm",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "http-header-user-agent": user_agent,
        "robots": robots,
    }
    block = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()
    fields = [
        ("WARC-Type", "warcinfo"),
        ("WARC-Record-ID", _record_id(f"{file_name}\n{date}")),
        ("WARC-Date", date),
        ("WARC-Filename", file_name),
        ("Content-Type", "application/warc-fields"),
    ]
    return _record(fields, block)


def http_block(page: FetchedPage) -> bytes:
    """Status line and headers of a response, with the encoding headers renamed, up to and with the empty line."""
    lines = [f"HTTP/1.1 {page.status} {page.status_text}".rstrip().encode("latin-1", "replace")]
    for name, value in page.headers:
        if name.lower() in ENCODING_HEADERS:
            name = b"X-Archive-Orig-" + name
        lines.append(name + b": " + value)
    lines.append(b"Content-Length: %d" % len(page.body))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_record(requested_url: str, page: FetchedPage, payload_digest: str) -> bytes:
    """A response record; `payload_digest` is `sha1_digest` of the body.

    Its id follows from the two URLs and the body, so that a second run gives the same one.
    """
    block = http_block(page)
    name = "\n".join((requested_url, page.final_url, payload_digest))
    fields = [
        ("WARC-Type", "response"),
        ("WARC-Record-ID", _record_id(name)),
        ("WARC-Date", page.date),
        ("WARC-Target-URI", page.final_url),
        (REQUESTED_URI_FIELD, requested_url),
        ("WARC-Payload-Digest", payload_digest),
        ("WARC-Block-Digest", sha1_digest(block, page.body)),
        ("Content-Type", "application/http;msgtype=response"),
    ]
    return _record(fields, block, page.body)
