"""Bytes of a page to text: byte-order mark, HTTP header, meta tag, UTF-8 where it fits, a guess, windows-1252.

A declaration that the bytes contradict does not count: a page is never decoded with replacement characters as long as
another reading fits.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from resiliparse.parse.encoding import detect_encoding

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
META_BYTES = 4096
# What browsers read when a page says these names (WHATWG Encoding Standard).
BROWSER_NAMES = {
    "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "iso-8859-9": "cp1254", "tis-620": "cp874",
}  # fmt: skip


def candidates(body: bytes, content_type: str) -> Iterator[str]:
    """Encodings in the order in which they are tried."""
    if match := _HEADER.search(content_type):
        yield match[1]
    head = body[:META_BYTES]
    for pattern in (_META, _XML):
        if match_bytes := pattern.search(head):
            name = match_bytes[1].decode("ascii", "ignore")
            # A page that could be searched for a tag is not in UTF-16, whatever the tag says.
            yield "utf-8" if name.lower().startswith("utf-16") else name
    yield "utf-8"
    guess = detect_encoding(body)
    if guess and not guess.lower().startswith(("windows-125", "iso-8859", "cp125")):
        yield guess


def decode_page(body: bytes, content_type: str) -> str:
    """The text of a page. Never raises: windows-1252 reads everything, with its five holes as control characters."""
    for mark, name in MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    for name in candidates(body, content_type):
        try:
            return body.decode(BROWSER_NAMES.get(name.lower(), name))
        except (UnicodeDecodeError, LookupError):
            continue
    return body.decode("cp1252", "replace") if _reads_as_cp1252(body) else body.decode("latin-1")


def _reads_as_cp1252(body: bytes) -> bool:
    return not any(hole in body for hole in (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d"))
