"""New connections: to judged addresses, with TLS, or through a proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote

from yarl import URL

from tasks.scrape.address_guard import AddressGuard
from tasks.scrape.http1_connection import Http1Connection

STAGGER_SECONDS = 0.25
"""A further address of a host is tried when the one before has not answered for so long (RFC 8305, section 5)."""
P = TypeVar("P", bound=asyncio.BaseProtocol)


class ConnectTimeoutError(TimeoutError):
    """There was no connection in time."""


class ProxyRefusedError(OSError):
    """The proxy does not connect to the host."""


def tls_context(protocols: list[str]) -> ssl.SSLContext:
    """Certificates and names are checked against the system's roots; `protocols` are offered by ALPN."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(protocols)
    return context


def by_turns(addresses: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The addresses with their families by turns, the first one's family first (RFC 8305, section 4)."""
    first = [item for item in addresses if item[0] == addresses[0][0]]
    others = [item for item in addresses if item[0] != addresses[0][0]]
    return [item for pair in itertools.zip_longest(first, others) for item in pair if item is not None]


def _tls_name(url: URL) -> str | None:
    """The name a certificate has to bear: without the dot at its end, which certificates never have."""
    return (url.raw_host or "").rstrip(".") if url.scheme == "https" else None


class Dialer:
    """Makes connections for the pool."""

    def __init__(self, guard: AddressGuard, proxy: str | None, make: Callable[[], Http1Connection]) -> None:
        """`make` gives a connection that is not connected yet."""
        self._guard, self._make = guard, make
        self._proxy = None if proxy is None else URL(proxy)
        self._context = tls_context(["http/1.1"])

    @property
    def proxy(self) -> URL | None:
        """The proxy all requests go through."""
        return self._proxy

    def proxy_authorization(self) -> bytes:
        """The header line for a proxy that wants a name and a password (RFC 7617), else nothing."""
        if self._proxy is None or self._proxy.raw_user is None:
            return b""
        pair = f"{unquote(self._proxy.raw_user)}:{unquote(self._proxy.raw_password or '')}"
        return b"Proxy-Authorization: Basic " + base64.b64encode(pair.encode()) + b"\r\n"

    async def connect(self, url: URL, seconds: float, deadline: float) -> Http1Connection:
        """A connection for requests to the origin of `url`, made within `seconds`.

        Raises ConnectTimeoutError, PrivateAddressError, ProxyRefusedError, ssl.SSLError and other OSErrors.
        """
        connection = self._make()
        try:
            async with asyncio.timeout(seconds) as limit:
                if self._proxy is not None:
                    await self._through_proxy(connection, self._proxy, url, deadline)
                else:
                    await self._directly(connection, url)
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError) and limit.expired():
                raise ConnectTimeoutError(f"no connection within {seconds:.1f} s") from error
            raise
        return connection

    async def _directly(self, connection: Http1Connection, url: URL) -> None:
        host, port = url.raw_host or "", url.port or 0
        opened = await self._open(by_turns(await self._guard.resolve(host, port)), port)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, sock=opened, ssl=self._tls(url), server_hostname=_tls_name(url)
            )
        except BaseException:
            opened.close()
            raise

    def _tls(self, url: URL) -> ssl.SSLContext | None:
        return self._context if url.scheme == "https" else None

    async def _open(self, addresses: list[tuple[int, str]], port: int) -> socket.socket:
        """A socket connected to the first address that answers."""
        if len(addresses) == 1:
            return await self._open_one(*addresses[0], port)
        trying: set[asyncio.Task[socket.socket]] = set()
        left = list(addresses)
        error: BaseException | None = None
        try:
            while left or trying:
                if left:
                    trying.add(asyncio.create_task(self._open_one(*left.pop(0), port)))
                done, trying = await asyncio.wait(
                    trying, timeout=STAGGER_SECONDS if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    if task.exception() is None:
                        trying |= done - {task}
                        return task.result()
                    error = error or task.exception()
        finally:
            for task in trying:
                task.cancel()
            for loser in await asyncio.gather(*trying, return_exceptions=True):
                if isinstance(loser, socket.socket):
                    loser.close()
        assert error is not None
        raise error

    async def _open_one(self, family: int, address: str, port: int) -> socket.socket:
        opened = self._guard.open_socket(family, address, port)
        try:
            await asyncio.get_running_loop().sock_connect(opened, (address, port))
        except BaseException:
            opened.close()
            raise
        return opened

    async def _through_proxy(self, connection: Http1Connection, proxy: URL, url: URL, deadline: float) -> None:
        """Connect to the proxy, which the user named and which may be anywhere; for https a tunnel (CONNECT)."""
        loop = asyncio.get_running_loop()
        host = proxy.raw_host or ""
        await loop.create_connection(
            lambda: connection, host, proxy.port or 0, ssl=self._tls(proxy), server_hostname=_tls_name(proxy)
        )
        if url.scheme != "https":
            return
        target = f"{url.raw_host if ':' not in (url.raw_host or '') else f'[{url.raw_host}]'}:{url.port}"
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode() + self.proxy_authorization() + b"\r\n"
        head = await connection.request(request, deadline, is_connect=True)
        if head.status >= 300:
            raise ProxyRefusedError(f"the proxy answered {head.status} {head.status_text}".rstrip())
        upgraded = await loop.start_tls(connection.transport, connection, self._context, server_hostname=_tls_name(url))
        if upgraded is None:
            with contextlib.suppress(OSError):
                connection.abort()
            raise ConnectionResetError("the proxy ended the tunnel")
        connection.transport = upgraded
