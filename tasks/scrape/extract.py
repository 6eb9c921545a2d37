"""One page to one document, or a reason. Runs in the process that extracts pages; see page_process."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from enum import StrEnum

from tasks.records import Document, Page, replace_surrogates
from tasks.scrape.canonical_url import canonical_url
from tasks.scrape.charset import decode_page
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extractors.contract import load_extractor
from tasks.scrape.extractors.nesting import flatten
from tasks.scrape.extractors.page_facts import page_facts
from tasks.scrape.media_type import BINARY_SIGNATURES, is_meaningless, media_type, sniff

HTML_TYPES = ("text/html", "application/xhtml+xml")
XML_TYPES = ("text/xml", "application/xml")
ID_DIGITS = 16
_ENCODING_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
# In UTF-8: all control characters but tab and line feed, and what is no character. In bytes, because they are rare and
# looking for them there costs a tenth.
_CONTROL_BYTES = bytes((*range(9), *range(11, 32), 127))
_C1_BYTES = re.compile(b"\xc2[\x80-\x9f]")
_NO_CHARACTERS = re.compile(b"\xef(?:\xbb\xbf|\xbf[\xbe\xbf])")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Browsers read the numbers 128 to 159 of character references as windows-1252 (HTML standard, section 13.2.5.80)
_WINDOWS_1252 = {
    code: character for code in range(0x80, 0xA0) if (character := bytes((code,)).decode("cp1252", "ignore"))
}
_C1 = re.compile("[\x80-\x9f]")


class ExtractReason(StrEnum):
    """Why a page gives no document."""

    BAD_RECORD = "bad_record"
    """The record holds no HTTP response that can be read, or no URL."""
    HTTP_STATUS = "http_status"
    """The server answered with something else than the page (a status outside 200 to 299)."""
    NOT_HTML = "not_html"
    """Another type by its header or its first bytes."""
    TOO_LARGE = "too_large"
    DUPLICATE_URL = "duplicate_url"
    """An earlier page has the same final URL."""
    PARSER_ERROR = "parser_error"
    """The extractor raised an error."""
    PARSER_CRASH = "parser_crash"
    """The extractor ended its process."""
    OUT_OF_MEMORY = "out_of_memory"
    """The extractor needed more memory than a page may take."""
    TIMEOUT = "timeout"
    """The extractor took longer than a page may take."""
    EMPTY_TEXT = "empty_text"
    TOO_SHORT = "too_short"


Result = tuple[Document | None, ExtractReason | None]
"""A document and None, or None and the reason."""


def document_id(url: str) -> str:
    """16 hex digits of the sha256 of the canonical URL, or of the URL as it is when it is none."""
    try:
        text = canonical_url(url)
    except ValueError:
        text = url
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:ID_DIGITS]


def reason_unread(page: Page, config: ExtractConfig) -> ExtractReason | None:
    """Why a page is not even parsed; None when it is."""
    if not page.status or not page.final_url:
        return ExtractReason.BAD_RECORD
    if not 200 <= page.status < 300:
        return ExtractReason.HTTP_STATUS
    if len(page.body) > config.max_page_bytes:
        return ExtractReason.TOO_LARGE
    if not page.body.strip():
        return ExtractReason.EMPTY_TEXT
    return None if _is_html(page.content_type, page.body) else ExtractReason.NOT_HTML


def _is_html(header: str, body: bytes) -> bool:
    if body.startswith(BINARY_SIGNATURES):
        return False
    if is_meaningless(header) or media_type(header) in XML_TYPES:
        return sniff(body) in HTML_TYPES
    return media_type(header) in HTML_TYPES


def page_text(page: Page) -> str:
    """The HTML of a page as the extractors want it: decoded, without control characters, nested within limits."""
    html = without_controls(decode_page(page.body, page.content_type))
    return flatten(_ENCODING_DECLARATION.sub("", html, count=1))


def without_controls(text: str) -> str:
    """`text` without control characters and terminal escapes; the only line end is `\\n`. Half pairs become U+FFFD."""
    if "\x1b" in text:
        text = _TERMINAL_ESCAPE.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = replace_surrogates(text).encode()
    data = data.translate(None, _CONTROL_BYTES)
    return _NO_CHARACTERS.sub(b"", _C1_BYTES.sub(b"", data)).decode()


def clean_text(text: str) -> str:
    """Extracted text without control characters, in NFC, without white space around it."""
    if not text.isascii():
        if _C1.search(text):
            text = text.translate(_WINDOWS_1252)
        text = unicodedata.normalize("NFC", text)
    return without_controls(text).strip()


def extract_page(page: Page, config: ExtractConfig) -> Result:
    """The document of a page, or the reason why it gives none. The same page gives the same result every time."""
    if (reason := reason_unread(page, config)) is not None:
        return None, reason
    html = page_text(page)
    if not html.strip():
        return None, ExtractReason.EMPTY_TEXT
    try:
        found = load_extractor(config.extractor)(html, page.final_url)
    except MemoryError:
        return None, ExtractReason.OUT_OF_MEMORY
    except Exception:  # noqa: BLE001 - parsers raise whatever they like on hostile pages; the page gets a reason
        return None, ExtractReason.PARSER_ERROR
    text = clean_text(found.text)
    if not text:
        return None, ExtractReason.EMPTY_TEXT
    if len(text) < config.min_text_characters:
        return None, ExtractReason.TOO_SHORT
    facts = page_facts(html)
    extra = {
        "title": clean_text(found.title or facts.title),
        "date": clean_text(found.date or facts.date),
        "language": clean_text(facts.language or found.language),
        "requested_url": page.url,
        "extractor": config.extractor,
        **found.metrics,
    }
    known = {name: value for name, value in extra.items() if value}
    return Document(document_id(page.final_url), page.final_url, text, known), None
