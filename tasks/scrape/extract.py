"""One page to one document, or a reason."""

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

_ENCODING_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
ID_DIGITS = 16
MAX_NESTING = 200
_TAGS = re.compile(r"<(/?)(div|span|section|font|b|i|table|ul|blockquote)\b[^>]*>", re.IGNORECASE)


class ExtractReason(StrEnum):
    """Why a page gives no document."""

    HTTP_STATUS = "http_status"
    TOO_LARGE = "too_large"
    PARSER_ERROR = "parser_error"
    EMPTY_TEXT = "empty_text"
    TOO_SHORT = "too_short"
    DUPLICATE_URL = "duplicate_url"


def document_id(url: str) -> str:
    """16 hex digits of the sha256 of the canonical URL, or of the URL as it is when it is none."""
    try:
        text = canonical_url(url)
    except ValueError:
        text = url
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:ID_DIGITS]


def flatten(html: str) -> str:
    """HTML without the tags below MAX_NESTING levels: parsers lose or crash on what lies deeper; the text stays."""
    depth = 0

    def keep(match: re.Match[str]) -> str:
        nonlocal depth
        if match[1]:
            depth = max(0, depth - 1)
            return match[0] if depth < MAX_NESTING else " "
        depth += 1
        return match[0] if depth <= MAX_NESTING else " "

    return _TAGS.sub(keep, html) if html.count("<") > MAX_NESTING else html


def extract_page(page: Page, config: ExtractConfig) -> tuple[Document | None, str]:
    """The document of a page and "", or None and the reason."""
    if page.status and not 200 <= page.status < 300:
        return None, ExtractReason.HTTP_STATUS
    if len(page.body) > config.max_page_bytes:
        return None, ExtractReason.TOO_LARGE
    html = _TERMINAL_ESCAPE.sub("", decode_page(page.body, page.content_type))
    html = _CONTROLS.sub("", _ENCODING_DECLARATION.sub("", html.replace("\r\n", "\n").replace("\r", "\n")))
    if not html.strip():
        return None, ExtractReason.EMPTY_TEXT
    try:
        found = load_extractor(config.extractor)(flatten(html), page.final_url)
    except Exception:  # noqa: BLE001 - parsers raise whatever they like on hostile pages; the page is the reason
        return None, ExtractReason.PARSER_ERROR
    text = unicodedata.normalize("NFC", replace_surrogates(_CONTROLS.sub("", found.text))).strip()
    if not text:
        return None, ExtractReason.EMPTY_TEXT
    if len(text) < config.min_text_characters:
        return None, ExtractReason.TOO_SHORT
    known = {"title": found.title, "date": found.date, "language": found.language, "extractor": config.extractor}
    extra = {name: replace_surrogates(_CONTROLS.sub("", value)) for name, value in known.items() if value}
    if page.url != page.final_url:
        extra["requested_url"] = page.url
    return Document(document_id(page.final_url), page.final_url, text, extra), ""
