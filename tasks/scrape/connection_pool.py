"""Connections by the place they lead to: kept for a while after use, and used again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from yarl import URL

from tasks.scrape.address_guard import AddressGuard
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.http1_connection import Http1Connection
from tasks.scrape.http_dial import Dialer

KEEPALIVE_SECONDS = 15.0
"""Longer than the usual delay between two requests to one host, shorter than most servers wait."""
SWEEP_SECONDS = 5.0

Origin = tuple[str, str | None, int | None]


class ConnectionPool:
    """Idle connections, the most recently used of an origin first; the oldest of all are closed when there are many."""

    def __init__(self, config: FetchConfig, guard: AddressGuard) -> None:
        """New connections go to addresses that `guard` lets through, or to the proxy of the settings."""
        self._limits = config.limits
        self._max_idle = config.resources.max_requests
        self._loop = asyncio.get_running_loop()
        self._dialer = Dialer(guard, config.resources.proxy, self._make)
        self._idle: dict[Origin, list[Http1Connection]] = {}
        self._all_idle: OrderedDict[Http1Connection, Origin] = OrderedDict()
        """In the order in which they became idle."""
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_old)

    def _make(self) -> Http1Connection:
        return Http1Connection(self._loop, self._limits.max_header_bytes, self._limits.silence_seconds)

    def _origin(self, url: URL) -> Origin:
        if self._dialer.proxy is not None and url.scheme == "http":
            return ("proxy", None, None)  # it carries requests to any host
        return (url.scheme, url.raw_host, url.port)

    async def take(self, url: URL, deadline: float) -> Http1Connection:
        """A connection for a request to `url`, an idle one where there is one. `deadline` is loop time."""
        waiting = self._idle.get(self._origin(url))
        while waiting:
            connection = waiting.pop()
            self._all_idle.pop(connection, None)
            if connection.is_reusable and self._loop.time() - connection.idle_since < KEEPALIVE_SECONDS:
                return connection
            connection.abort()
        seconds = min(self._limits.connect_seconds, deadline - self._loop.time())
        return await self._dialer.connect(url, max(seconds, 0.0), deadline)

    def give_back(self, url: URL, connection: Http1Connection) -> None:
        """Keep the connection when its answer is whole and the server agrees, else end it."""
        if not connection.is_reusable:
            connection.abort()
            return
        origin = self._origin(url)
        connection.idle_since = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        self._all_idle[connection] = origin
        while len(self._all_idle) > self._max_idle:
            self._forget(next(iter(self._all_idle)))

    def request_bytes(self, url: URL, fields: bytes) -> bytes:
        """A GET for `url` with the header lines `fields`."""
        host = url.host_port_subcomponent or ""
        target = url.raw_path_qs
        if self._dialer.proxy is not None and url.scheme == "http":
            target = f"http://{host}{target}"
            fields = self._dialer.proxy_authorization() + fields
        return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n".encode() + fields + b"\r\n"

    def _forget(self, connection: Http1Connection) -> None:
        origin = self._all_idle.pop(connection)
        waiting = self._idle.get(origin, [])
        if connection in waiting:
            waiting.remove(connection)
        if not waiting:
            self._idle.pop(origin, None)
        connection.abort()

    def _close_old(self) -> None:
        now = self._loop.time()
        while self._all_idle:
            oldest = next(iter(self._all_idle))
            if oldest.is_reusable and now - oldest.idle_since < KEEPALIVE_SECONDS:
                break
            self._forget(oldest)
        for origin in [origin for origin, waiting in self._idle.items() if not waiting]:
            del self._idle[origin]
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_old)

    async def close(self) -> None:
        """End all idle connections."""
        self._sweep.cancel()
        for connection in list(self._all_idle):
            self._forget(connection)
        await asyncio.sleep(0)  # transports close in the next turn of the loop
