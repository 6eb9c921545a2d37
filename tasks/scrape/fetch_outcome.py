"""What became of a URL: a closed set of reasons, and the row that is kept for every URL of the list."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import orjson


class FetchReason(StrEnum):
    """How the attempt to fetch a URL ended. Only `ok` is a stored page."""

    OK = "ok"
    BAD_URL = "bad_url"
    """Not a URL of an HTTP server, or one that carries a user name."""
    DUPLICATE_URL = "duplicate_url"
    """The same URL (apart from its fragment) stands earlier in the list; it was not requested again."""
    DUPLICATE_PAGE = "duplicate_page"
    """Its redirects end at a page that a URL earlier in the list brought."""
    PRIVATE_HOST = "private_host"
    """The host, or one it redirects to, has a private, local or otherwise special address."""
    DNS_FAILURE = "dns_failure"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_FAILED = "connection_failed"
    """No connection for another reason (network or host unreachable)."""
    CONNECTION_RESET = "connection_reset"
    """The server closed the connection before it answered."""
    TIMEOUT = "timeout"
    TLS_ERROR = "tls_error"
    """The certificate is not good, or there is no TLS at that port."""
    BAD_RESPONSE = "bad_response"
    """The answer is not HTTP, or its header is too large."""
    ROBOTS_DISALLOWED = "robots_disallowed"
    ROBOTS_UNAVAILABLE = "robots_unavailable"
    """robots.txt was answered with a server error: nothing may be fetched (RFC 9309, section 2.3.1.4)."""
    OPTED_OUT = "opted_out"
    """The page says noai."""
    HTTP_ERROR = "http_error"
    """Any status that is neither a page nor a redirect; the row has it."""
    BAD_REDIRECT = "bad_redirect"
    """A redirect without a target, or to something that is no HTTP URL."""
    REDIRECT_LOOP = "redirect_loop"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    TOO_LARGE = "too_large"
    """The body is larger than allowed, as sent or after decompression."""
    TRUNCATED = "truncated"
    """The body ended before its Content-Length, its last chunk or the end of its compressed stream."""
    BAD_ENCODING = "bad_encoding"
    """The body is not in the content encoding its header names, or in one that was not asked for."""
    CONTENT_TYPE = "content_type"
    """Not one of the accepted media types."""
    EMPTY_BODY = "empty_body"


NETWORK_REASONS = frozenset(
    {
        FetchReason.DNS_FAILURE,
        FetchReason.CONNECTION_REFUSED,
        FetchReason.CONNECTION_FAILED,
        FetchReason.CONNECTION_RESET,
        FetchReason.TIMEOUT,
    }
)
"""Reasons that say more about the network than about the page."""


@dataclass(slots=True)
class FetchOutcome:
    """One row of outcomes.jsonl.zst, and what is logged beside it."""

    url: str
    """As it stands in the list."""
    reason: FetchReason
    final_url: str = ""
    """The last URL of the redirect chain that was reached; empty when nothing was requested."""
    status: int = 0
    """The last HTTP status; 0 when there was no answer."""
    num_bytes: int = 0
    """Bytes of the stored body, decoded."""
    num_requests: int = 0
    """Requests sent for this URL, redirects and retries included, robots.txt not."""
    seconds: float = 0.0
    """Wall time from the first request to the end; logged only."""
    detail: str = ""
    """What exactly went wrong; logged only."""

    def to_json(self) -> bytes:
        """The row without its newline. Times and messages are left out: they differ from run to run."""
        row = {
            "url": self.url,
            "final_url": self.final_url,
            "status": self.status,
            "reason": self.reason,
            "num_bytes": self.num_bytes,
            "num_requests": self.num_requests,
        }
        return orjson.dumps(row)

    def to_log(self) -> bytes:
        """The log row without its newline."""
        return orjson.dumps(
            {"url": self.url, "reason": self.reason, "seconds": round(self.seconds, 3), "detail": self.detail[:500]}
        )


class FetchFailure(Exception):
    """An attempt ended without a page. Raised inside the fetcher only; it becomes a FetchOutcome."""

    def __init__(
        self,
        reason: FetchReason,
        detail: str = "",
        *,
        status: int = 0,
        may_heal: bool = False,
        is_connection: bool = False,
    ) -> None:
        """`may_heal`: trying again may help. `is_connection`: there was no connection to the host at all."""
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.status = reason, detail, status
        self.may_heal, self.is_connection = may_heal, is_connection

    def remembered(self) -> FetchFailure:
        """The same failure without its traceback, whose frames would hold bodies in memory."""
        return FetchFailure(self.reason, self.detail, status=self.status)


@dataclass(slots=True)
class FetchedPage:
    """A page as the server sent it; the body is decoded from its content encoding, not from its charset."""

    final_url: str
    date: str
    """When the answer began, RFC 3339, UTC, whole seconds."""
    status: int
    status_text: str
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """As received, in order."""
    body: bytes = b""

    def header(self, name: bytes) -> str:
        """The first header of that name (in lower case), with bytes read as Latin-1; empty when there is none."""
        return next((value.decode("latin-1") for field, value in self.headers if field.lower() == name), "")


class PageFacts(NamedTuple):
    """What is kept of a page beside its record: for the index, and for asking again later."""

    date: str = ""
    """When the answer began, RFC 3339, UTC."""
    status: int = 0
    """The status of the stored answer."""
    mime: str = ""
    digest: str = ""
    """Of the body, "sha1:" and base32."""
    etag: str = ""
    last_modified: str = ""
