"""https, directly and through a proxy's tunnel: the certificate is looked at in both.

town.example.pem is a key and a certificate that signs itself, made for these tests and for nothing else. The system's
certificates are read when a process starts, so the crawl that trusts it is a process of its own (SSL_CERT_FILE).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PEM = Path(__file__).with_name("town.example.pem")
PAGE = b"<html><title>t</title><p>Words about the bridge.</p></html>"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)
CHILD = """
import asyncio, json, socket, sys
from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig, FetchResources
async def work(names, port, proxy, urls):
    resources = FetchResources(delay_seconds=0, backoff_seconds=0.01, proxy=proxy)
    config = FetchConfig(allow_private_hosts=tuple(names), respect_robots=False, resources=resources)
    async with PageFetcher(config, lambda host, port: [(socket.AF_INET, "127.0.0.1")]) as fetcher:
        found = [await fetcher.fetch(url) for url in urls]
    return [(outcome.reason, outcome.detail, page and page.body.decode()) for outcome, page in found]
print(json.dumps(asyncio.run(work(*json.loads(sys.argv[1])))))
"""


class Servers:
    """A TLS server and a proxy for it, in a thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """First line and Proxy-Authorization of what the proxy was asked."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PEM)
        async with (
            await asyncio.start_server(self._page, "127.0.0.1", 0, ssl=context) as pages,
            await asyncio.start_server(self._proxy, "127.0.0.1", 0) as proxy,
        ):
            self.port = int(pages.sockets[0].getsockname()[1])
            self.proxy_port = int(proxy.sockets[0].getsockname()[1])
            self._ready.set()
            await self._stop.wait()

    async def _page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
        writer.close()

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        self.asked.append((head[0], fields.get("Proxy-Authorization", "")))
        if "closed.example" in head[0]:
            writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))

    def __enter__(self) -> Servers:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
    writer.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    with Servers() as running:
        yield running


def fetch(servers: Servers, urls: list[str], proxy: str | None, trusted: bool = True) -> list[tuple[str, str, str]]:
    """Reason, detail and body of each URL, from a process that trusts the certificate or does not."""
    names = [f"{name}:{servers.port}" for name in ("town.example", "other.example")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"SSL_CERT_FILE": str(PEM)} if trusted else {})}
    arguments = [sys.executable, "-c", CHILD, json.dumps([names, servers.port, proxy, urls])]
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout)]


def test_a_certificate_has_to_be_trusted_and_of_the_host(servers: Servers) -> None:
    urls = [f"https://{name}:{servers.port}/" for name in ("town.example", "town.example.", "other.example")]
    good, dotted, other = fetch(servers, urls[:1], None) + fetch(servers, urls[1:], None)
    assert (good[0], good[2]) == ("ok", PAGE.decode()), good
    assert dotted[0] == "ok", dotted
    assert other[0] == "tls_error" and "other.example" in other[1], other
    assert fetch(servers, urls[:1], None, trusted=False)[0][0] == "tls_error"


def test_a_proxy_makes_a_tunnel(servers: Servers) -> None:
    urls = [f"https://{name}:{servers.port}/" for name in ("town.example", "other.example", "closed.example")]
    good, other, closed = fetch(servers, urls, f"http://me:secret@127.0.0.1:{servers.proxy_port}")
    assert (good[0], good[2]) == ("ok", PAGE.decode()), good
    assert other[0] == "tls_error", other
    assert closed[0] == "bad_response" and "403" in closed[1], closed
    word = "Basic " + base64.b64encode(b"me:secret").decode()
    assert servers.asked[0] == (f"CONNECT town.example:{servers.port} HTTP/1.1", word)
