"""Bytes of a page to text: byte-order mark, HTTP header, meta tag, UTF-8 where it fits, a guess, windows-1252.

A declaration that the bytes contradict does not count, and no page is decoded with replacement characters: bytes that
do not fit among many that do are read as windows-1252, one by one. Names mean what browsers take them for (WHATWG
Encoding Standard): iso-8859-1 is windows-1252, gb2312 is gb18030.
"""

from __future__ import annotations

import codecs
import re

from resiliparse.parse.encoding import detect_encoding

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
META_BYTES = 4096
DETECTED_BYTES = 1 << 18
SURE_CHARACTERS = 10
"""So many characters beyond ASCII in valid UTF-8 are no accident of another encoding of several bytes."""
GOOD_FOR_BAD = 4
"""Valid characters beyond ASCII for each invalid byte, at least, in what still counts as UTF-8."""

_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,400}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_LANGUAGE = re.compile(rb"<html[^>]{0,400}?\slang\s*=\s*[\"']?([a-z]{2,3})\b", re.IGNORECASE)

# Label -> Python's codec. Only names that are listed count: Python also has codecs that are no character sets.
CODECS = {
    **dict.fromkeys(("utf-8", "utf8", "unicode-1-1-utf-8"), "utf-8"),
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "iso88591", "latin1", "latin-1"), "cp1252"),
    **dict.fromkeys(("ascii", "us-ascii", "cp1252", "windows-1252", "x-cp1252", "ansi", "iso_8859-1"), "cp1252"),
    **{f"windows-{number}": f"cp{number}" for number in (1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)},
    **{f"cp{number}": f"cp{number}" for number in (1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258, 866, 874)},
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"iso8859-{number}": f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **dict.fromkeys(("iso-8859-9", "iso8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("iso-8859-11", "tis-620", "windows-874"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk", "chinese", "hz-gb-2312"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs", "x-x-big5"), "big5hkscs"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "ms_kanji", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "windows-949", "korean"), "cp949"),
    "euc-jp": "euc-jp", "x-euc-jp": "euc-jp", "iso-2022-jp": "iso2022-jp", "iso-2022-kr": "iso2022-kr",
    "koi8-r": "koi8-r", "koi8-u": "koi8-u", "ibm866": "cp866", "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "utf-16": "utf-16-le", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be",
}  # fmt: skip
SEVERAL_BYTES = frozenset(("gb18030", "big5hkscs", "cp932", "cp949", "euc-jp"))
SEVEN_BITS = frozenset(("iso2022-jp", "iso2022-kr", "utf-16-le", "utf-16-be"))
# Codecs between which statistics cannot decide; the language of the page does.
LATIN = frozenset(("cp1252", "cp1250", "cp1254", "cp1257", "cp1258", "mac-roman")) | {
    f"iso8859-{number}" for number in (2, 3, 4, 10, 13, 14, 15, 16)
}
CODEC_OF_LANGUAGE = {
    **dict.fromkeys(("cs", "hu", "pl", "sk", "sl", "hr", "bs", "ro", "sq"), "cp1250"),
    **dict.fromkeys(("tr", "az", "ku"), "cp1254"),
    **dict.fromkeys(("lt", "lv", "et"), "cp1257"),
    **dict.fromkeys(("ru", "bg", "uk", "be", "mk", "sr"), "cp1251"),
    "el": "cp1253", "he": "cp1255", "iw": "cp1255", "ar": "cp1256", "fa": "cp1256", "vi": "cp1258", "th": "cp874",
}  # fmt: skip


def _as_windows_1252(error: UnicodeError) -> tuple[str, int]:
    """Error handler: the bytes that do not fit, read as windows-1252; its five holes as control characters."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in bad), error.end


BAD_BYTES = "url2lm-windows-1252"
codecs.register_error(BAD_BYTES, _as_windows_1252)


def declared_codec(body: bytes, content_type: str) -> str | None:
    """The codec that the header, or else the page, names; None when neither names a known one."""
    if (match := _HEADER.search(content_type)) and (codec := CODECS.get(match[1].lower())):
        return codec
    head = body[:META_BYTES]
    for pattern in (_META, _XML):
        if (found := pattern.search(head)) and (codec := CODECS.get(found[1].decode("ascii", "ignore").lower())):
            # a page in which a tag can be found is not in UTF-16, whatever the tag says
            return "utf-8" if codec.startswith("utf-16") else codec
    return None


def decode_page(body: bytes, content_type: str = "") -> str:
    """The text of a page, without its byte-order mark. Never raises; never makes U+FFFD out of bytes."""
    for mark, codec in MARKS:
        if body.startswith(mark):
            errors = "ignore" if codec.startswith("utf-16") else BAD_BYTES
            return body[len(mark) :].decode(codec, errors)
    declared = declared_codec(body, content_type)
    if (text := _strictly(body, "utf-8")) is not None:
        return _valid_utf8(body, text, declared)
    if declared is not None and declared != "utf-8":
        if declared in SEVERAL_BYTES or declared in SEVEN_BITS:
            text = _mostly(body, declared)
            if text is not None:
                return text
        else:
            return body.decode(declared, BAD_BYTES)
    escaped = body.decode("utf-8", "surrogateescape")
    num_bad = sum("\udc80" <= character <= "\udcff" for character in escaped)
    num_good = sum(character > "\x7f" for character in escaped) - num_bad
    if num_good >= GOOD_FOR_BAD * num_bad:
        return body.decode("utf-8", BAD_BYTES)
    return body.decode(_guess(body), BAD_BYTES)


def _valid_utf8(body: bytes, text: str, declared: str | None) -> str:
    """`text` is `body` as UTF-8. Another declaration only counts where that could be an accident."""
    if declared is None or declared not in SEVERAL_BYTES | SEVEN_BITS:
        return text
    if sum(character > "\x7f" for character in text) >= SURE_CHARACTERS:
        return text
    other = _strictly(body, declared)
    # ASCII declared as UTF-16 would be pairs of letters read as one sign
    return text if other is None or (declared.startswith("utf-16") and b"\0" not in body) else other


def _strictly(body: bytes, codec: str) -> str | None:
    try:
        return body.decode(codec)
    except UnicodeDecodeError:
        return None


def _mostly(body: bytes, codec: str) -> str | None:
    """`body` in an encoding of several bytes, when at most one byte in a hundred beyond ASCII does not fit."""
    if (text := _strictly(body, codec)) is not None:
        return text
    text = body.decode(codec, "replace")
    num_beyond = sum(byte > 0x7F for byte in body)
    return text.replace("\ufffd", "") if text.count("\ufffd") * 100 <= num_beyond else None


def _guess(body: bytes) -> str:
    """A codec for bytes that are no UTF-8 and that nothing describes."""
    language = _LANGUAGE.search(body[:META_BYTES])
    by_language = CODEC_OF_LANGUAGE.get(language[1].decode().lower()) if language else None
    found = CODECS.get((detect_encoding(body[:DETECTED_BYTES]) or "").lower())
    if found in SEVERAL_BYTES and _strictly(body, found) is not None:
        return found
    if found is None or found in LATIN or found in SEVERAL_BYTES or found.startswith("utf"):
        return by_language or "cp1252"
    return found
