"""One HTTP/1.1 connection: a request, its answer, and the next request when the server lets it."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from tasks.scrape.http1_parser import ResponseParser
from tasks.scrape.http_message import (
    BadResponseError,
    DeadlineError,
    ResponseHead,
    ServerClosedError,
    SilenceError,
    TruncatedBodyError,
)

MAX_WAITING_BYTES = 1 << 18
"""Bytes of a body that may wait for their reader before the server is told to wait (by TCP)."""


class Http1Connection(asyncio.Protocol):
    """One exchange at a time: `request`, then `read` until it gives nothing.

    One timer watches over both limits, the silence of the server and the deadline of the page. It is not set anew for
    every piece that comes: when it goes off too early it looks at what is still allowed and waits for that.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_field_bytes: int, silence_seconds: float) -> None:
        """`max_field_bytes`: of a header field; `silence_seconds`: a server may send nothing for so long."""
        self._loop = loop
        self._silence_seconds = silence_seconds
        self._parser = ResponseParser(max_field_bytes)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._last_data = 0.0
        self._waiting_bytes = 0
        self._is_paused = False
        self._is_lost = False
        self.num_requests = 0
        """Requests sent so far."""
        self.idle_since = 0.0
        """Loop time; set by the pool."""

    @property
    def is_reusable(self) -> bool:
        """The answer is whole, and the server waits for the next request."""
        return self._parser.is_done and self._parser.keeps_alive and not self._is_lost and self._error is None

    @property
    def transport(self) -> asyncio.Transport:
        """What it is connected by; set anew when TLS begins inside a tunnel."""
        assert self._transport is not None
        return self._transport

    @transport.setter
    def transport(self, value: asyncio.Transport) -> None:
        self._transport = value

    async def request(self, data: bytes, deadline: float, *, is_connect: bool = False) -> ResponseHead:
        """Send a request and wait for the head of its answer. `deadline` (loop time) holds for the body too.

        Raises BadResponseError, ServerClosedError, SilenceError, DeadlineError, or the OSError of the connection.
        """
        self.num_requests += 1
        self._parser.start(is_connect)
        self._waiting_bytes = 0
        self._deadline, self._last_data = deadline, self._loop.time()
        self._set_timer(min(deadline, self._last_data + self._silence_seconds))
        if self._is_lost:
            raise ServerClosedError("the connection had ended") from self._error
        self.transport.write(data)
        while self._parser.head is None:
            await self._more()
        return self._parser.head

    async def read(self) -> bytes:
        """The next bytes of the body, b"" at its end. Raises as `request` does, and TruncatedBodyError."""
        parser = self._parser
        while not parser.pieces and not parser.is_done:
            await self._more()
        pieces, parser.pieces = parser.pieces, []
        self._waiting_bytes = 0
        if self._is_paused and not self._is_lost:
            self._is_paused = False
            self._last_data = self._loop.time()  # it was us who kept the server waiting
            self.transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self) -> None:
        """End the connection at once."""
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        """Wait until something came."""
        if self._error is not None:
            error, self._error = self._error, None
            self._is_lost = True
            try:
                raise error
            finally:
                del error
        if self._timer is None:
            self._set_timer(min(self._deadline, self._last_data + self._silence_seconds))
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None or self._is_lost:
            return  # nobody waits for this server; whoever does sets the timer again
        now = self._loop.time()
        if now >= self._deadline:
            self._fail(DeadlineError("the page took too long as a whole"))
        elif now >= self._last_data + self._silence_seconds:
            self._fail(SilenceError(f"nothing came for {self._silence_seconds:g} s"))
        else:
            self._set_timer(min(self._deadline, self._last_data + self._silence_seconds))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        self._last_data = self._loop.time()
        parser = self._parser
        if parser.is_done:
            parser.keeps_alive = False  # bytes nobody asked for: this connection cannot be trusted with a request
            return
        try:
            parser.feed(data)
        except BadResponseError as error:
            self._fail(error)
            return
        if parser.head is not None:
            self._waiting_bytes += len(data)
            if self._waiting_bytes > MAX_WAITING_BYTES and not self._is_paused and not parser.is_done:
                self._is_paused = True
                self.transport.pause_reading()
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parser.is_done:
            return
        if self._error is None:
            self._error = self._named(error)
        self._wake()

    def _named(self, error: Exception | None) -> Exception | None:
        """The exception for a connection that ended before its answer; None when the end is the answer's own."""
        if self._parser.head is not None:
            if error is not None and not isinstance(error, ssl.SSLError):
                return TruncatedBodyError(f"{type(error).__name__}: {error}")
            try:
                self._parser.finish()
            except TruncatedBodyError as truncated:
                return truncated
            return None
        if error is not None:
            return error
        if self._parser.has_begun:
            return BadResponseError("the connection ended within the header")
        return ServerClosedError("the server closed the connection before it answered")
