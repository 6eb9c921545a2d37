"""URLs of the list and of Location headers, and which answers are redirects."""

from __future__ import annotations

import re

from yarl import URL

from tasks.scrape.fetch_outcome import FetchFailure, FetchReason
from tasks.scrape.http_client import Reply

REDIRECT_STATUSES = (301, 302, 303, 307, 308)
MAX_URL_CHARACTERS = 8000


_CONTROLS = re.compile("[\x00-\x1f\x7f]")


def parse_url(text: str) -> URL:
    """The URL that is requested for a line of the list, without its fragment. Raises FetchFailure(bad_url)."""
    if len(text) > MAX_URL_CHARACTERS or _CONTROLS.search(text):
        raise FetchFailure(FetchReason.BAD_URL, "too long, or with control characters")
    try:
        url = URL(text)
        if url.raw_fragment or "#" in text:
            url = url.with_fragment(None)
    except ValueError as error:
        raise FetchFailure(FetchReason.BAD_URL, str(error)) from error
    return _checked(url, FetchReason.BAD_URL)


def redirect_target(reply: Reply) -> URL:
    """Where a redirect leads, without fragment. Raises FetchFailure(bad_redirect)."""
    # headers are decoded as UTF-8 with other bytes kept as half surrogates; servers mean Latin-1 by them
    location = reply.header("Location").strip()
    raw = location.encode("utf-8", "surrogateescape")
    try:
        location = raw.decode("utf-8")
    except UnicodeDecodeError:
        location = raw.decode("latin-1")
    if not location or len(location) > MAX_URL_CHARACTERS or _CONTROLS.search(location):
        raise FetchFailure(FetchReason.BAD_REDIRECT, f"Location {location[:80]!r}", status=reply.status)
    try:
        url = reply.url.join(URL(location)).with_fragment(None)
    except ValueError as error:
        raise FetchFailure(FetchReason.BAD_REDIRECT, str(error), status=reply.status) from error
    return _checked(url, FetchReason.BAD_REDIRECT, reply.status)


def _checked(url: URL, reason: FetchReason, status: int = 0) -> URL:
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise FetchFailure(reason, f"no URL of an HTTP server: {url.scheme}", status=status)
    if url.user is not None or url.password is not None:
        raise FetchFailure(reason, "it carries a user name", status=status)
    return url
