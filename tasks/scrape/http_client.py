"""One request at a time, with every way it can end named: a Reply, or a FetchFailure with its reason.

The client is aiohttp: HTTP/1.1 over connections that are used again, and no HTTP/2, which aiohttp does not have. A
polite crawl would gain little from it: its point is many requests at once over one connection to one host.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDictProxy
from yarl import URL

from tasks.scrape.address_guard import AddressGuard, Lookup, system_lookup
from tasks.scrape.body_decoder import ACCEPT_ENCODING, BodyDecoder
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchFailure, FetchReason
from tasks.scrape.http_errors import HTTP_ERRORS, explain
from tasks.scrape.politeness import Politeness

RETRIED_STATUSES = (408, 429, 502, 503, 504)
LARGE_PAGE_BYTES = 1 << 20
MAX_LARGE_PAGES = 8
FED_BYTES = 4096
MAX_STALE_CONNECTIONS = 3
MAX_DRAINED_BYTES = 1 << 16
"""Bytes of a body nobody wants that are read all the same, so that the connection can be used again."""
DRAIN_SECONDS = 1.0
KEEPALIVE_SECONDS = 5.0
"""Longer than the usual delay between two requests to one host; with hundreds of new hosts a second the idle
connections still are fewer than the files that may be open."""


@dataclass(slots=True)
class Reply:
    """An HTTP answer. `body` is empty unless it was asked for."""

    url: URL
    status: int
    status_text: str
    headers: CIMultiDictProxy[str]
    raw_headers: Sequence[tuple[bytes, bytes]]
    """As received, in order."""
    started_at: float
    """Wall clock, seconds since the epoch."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first header of that name, empty when there is none."""
        return self.headers.get(name, "")


@dataclass(slots=True)
class Budget:
    """What one page may still cost: network seconds and attempts. Shared by its redirects and retries."""

    seconds: float
    retries: int
    num_requests: int = 0
    stale_connections: int = 0
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class BodyRule:
    """Which answers have a body worth reading, and how much of it."""

    wants: Callable[[int, CIMultiDictProxy[str]], bool]
    """`wants(status, headers)`; may raise FetchFailure to end the page."""
    max_body_bytes: int
    max_page_bytes: int


def retry_after_seconds(header: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for: a number or a date (RFC 9110, section 10.2.3); None for neither."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


Conditions = Mapping[str, str] | None
IS_REUSED: ContextVar[bool] = ContextVar("IS_REUSED", default=False)
"""In each task: the last request went over a connection that had served others."""


class NotingConnector(aiohttp.TCPConnector):
    """Says of each connection it hands out whether it is a fresh one."""

    def __init__(self, **settings: Any) -> None:
        """Takes what TCPConnector takes."""
        super().__init__(**settings)
        self._used: WeakSet[object] = WeakSet()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection for the request, from the pool where one is idle."""
        connection = await super().connect(req, traces, timeout)
        protocol = connection.protocol
        if protocol in self._used:
            IS_REUSED.set(True)
        else:
            self._used.add(protocol)
        return connection


class HttpClient:
    """Requests with politeness, guard, time limits and retries. Use it as an async context manager."""

    def __init__(self, config: FetchConfig, lookup: Lookup = system_lookup) -> None:
        """`lookup` finds the addresses of a host name; tests give their own."""
        self._config = config
        resources = config.resources
        self._guard = AddressGuard(config.allow_private_hosts, lookup, config.limits.connect_seconds)
        self.politeness = Politeness(
            max_requests=resources.max_requests,
            max_requests_per_host=resources.max_requests_per_host,
            delay_seconds=resources.delay_seconds,
            max_host_failures=resources.max_host_failures,
        )
        self._large_pages = asyncio.Semaphore(MAX_LARGE_PAGES)
        self._headers = {
            "User-Agent": config.user_agent_header,
            "Accept": ", ".join((*config.accepted_types, "*/*;q=0.1")),
            "Accept-Encoding": ACCEPT_ENCODING,
        }

    async def __aenter__(self) -> HttpClient:
        limits, proxied = self._config.limits, self._config.resources.proxy is not None
        connector = NotingConnector(
            limit=0,  # turns are the limit
            # through a proxy only the proxy is connected to, and the user named it
            resolver=None if proxied else self._guard,
            socket_factory=None if proxied else self._guard.open_socket,
            use_dns_cache=proxied,  # the guard has its own, which is larger
            keepalive_timeout=KEEPALIVE_SECONDS,
        )
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=limits.max_header_bytes,
            max_field_size=limits.max_header_bytes,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=limits.connect_seconds, sock_read=limits.silence_seconds
            ),
        )
        # aiohttp would send a GET again by itself after a reset; attempts are counted and waited for here
        self._session._retry_connection = False
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._guard.close()

    async def get(self, url: URL, budget: Budget, rule: BodyRule, conditions: Conditions = None) -> Reply:
        """The answer to one URL; redirects are the caller's business. Tries again what may heal.

        `conditions` are further header fields. Raises FetchFailure. A status that was tried again and stays is
        returned like any other.
        """
        host = url.raw_host or ""
        if self._guard.refuses(host, url.port or 0):
            raise FetchFailure(FetchReason.PRIVATE_HOST, host)
        attempt = 0
        while True:
            failure: FetchFailure | None = None
            reply: Reply | None = None
            asked_seconds: float | None = None
            turn = await self.politeness.take_turn(host)
            try:
                reply = await self._request(url, conditions, budget, rule)
                self.politeness.connected(host)
                if reply.status in RETRIED_STATUSES:
                    asked_seconds = self._asked_seconds(reply)
                    if asked_seconds:
                        self.politeness.pause(host, asked_seconds)
            except FetchFailure as error:
                failure = error
                if error.is_connection:
                    self.politeness.failed(host, error)
                else:
                    self.politeness.connected(host)
            finally:
                self.politeness.end_turn(turn)
            if failure is not None and self._was_stale(failure, budget):
                continue
            healthy = reply is not None and reply.status not in RETRIED_STATUSES
            final = failure is not None and not failure.may_heal
            if healthy or final or budget.retries <= 0 or budget.seconds <= 0:
                break
            budget.retries -= 1
            await asyncio.sleep(self._wait_seconds(url, attempt, asked_seconds))
            attempt += 1
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # or the exception and this frame would keep each other, and the body, alive
        assert reply is not None
        return reply

    def _was_stale(self, failure: FetchFailure, budget: Budget) -> bool:
        """True when the server had closed an idle connection just before it was used again: that is nobody's failure
        (RFC 9112, section 9.3.1), and the request goes out again at once."""
        if failure.reason != FetchReason.CONNECTION_RESET or not IS_REUSED.get():
            return False
        budget.stale_connections += 1
        return budget.stale_connections <= MAX_STALE_CONNECTIONS

    def _asked_seconds(self, reply: Reply) -> float | None:
        asked = retry_after_seconds(reply.header("Retry-After"), time.time())
        return None if asked is None else min(asked, self._config.limits.max_retry_after_seconds)

    def _wait_seconds(self, url: URL, attempt: int, asked_seconds: float | None) -> float:
        # Random waits keep many pages from coming back at the same moment; seeded, so that a run can be repeated.
        seed = f"{self._config.resources.seed}:{attempt}:{url}"
        share = random.Random(seed).random() / 2
        if asked_seconds is not None:
            return asked_seconds + share * min(1.0, self._config.resources.backoff_seconds)
        return self._config.resources.backoff_seconds * float(2**attempt) * (1.0 + share)

    async def _request(self, url: URL, conditions: Conditions, budget: Budget, rule: BodyRule) -> Reply:
        budget.num_requests += 1
        IS_REUSED.set(False)
        status = 0
        started = self._loop.time()
        try:
            async with (
                asyncio.timeout_at(started + max(budget.seconds, 0.0)) as limit,
                self._session.get(
                    url, headers=conditions, allow_redirects=False, proxy=self._config.resources.proxy
                ) as response,
            ):
                status = response.status
                reply = Reply(url, status, response.reason or "", response.headers, response.raw_headers, time.time())
                if rule.wants(status, reply.headers):
                    reply.body = await self._read_body(response, rule)
                else:
                    await self._drain(response)
                return reply
        except FetchFailure as failure:
            failure.status = status
            raise
        except HTTP_ERRORS as error:
            if isinstance(error, TimeoutError) and limit.expired():
                named = FetchFailure(FetchReason.TIMEOUT, "the page took too long as a whole")
            else:
                named = explain(error)
            named.status = status
            raise named from error
        finally:
            budget.seconds -= self._loop.time() - started

    async def _drain(self, response: aiohttp.ClientResponse) -> None:
        """Read a short body that is not wanted: what came so far is a whole answer, whatever happens here."""
        content = response.content
        if content.at_eof() or (response.content_length or 0) > MAX_DRAINED_BYTES:
            return
        num_bytes = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while num_bytes <= MAX_DRAINED_BYTES and (piece := await content.readany()):
                    num_bytes += len(piece)
        except HTTP_ERRORS:
            response.close()

    async def _read_body(self, response: aiohttp.ClientResponse, rule: BodyRule) -> bytes:
        content, length = response.content, response.content_length
        if (length or 0) > rule.max_body_bytes:
            raise FetchFailure(FetchReason.TOO_LARGE, f"Content-Length {length}")
        encoding = ", ".join(response.headers.getall("Content-Encoding", ()))
        is_plain = not encoding and "Transfer-Encoding" not in response.headers
        if is_plain and length is not None and length <= min(LARGE_PAGE_BYTES, rule.max_page_bytes):
            return await content.read()  # the parser gives `length` bytes, or says that there are fewer
        decoder = BodyDecoder(encoding, rule.max_body_bytes, rule.max_page_bytes)
        while piece := await content.readany():
            if not encoding and len(piece) + decoder.num_page_bytes <= LARGE_PAGE_BYTES:
                decoder.feed(piece)
                continue
            # Only so many large pages are held at a time, whatever the number of requests in flight.
            # A compressed piece is looked at bit by bit: four kilobytes can stand for four megabytes.
            for place in range(0, len(piece), FED_BYTES):
                decoder.feed(piece[place : place + FED_BYTES])
                if decoder.num_page_bytes > LARGE_PAGE_BYTES:
                    async with self._large_pages:
                        piece = piece[place + FED_BYTES :]
                        piece = piece or await content.readany()
                        while piece:
                            # in a thread: a bomb would keep the event loop busy for a tenth of a second
                            await asyncio.to_thread(decoder.feed, piece)
                            piece = await content.readany()
                        return decoder.finish()
        return decoder.finish()
