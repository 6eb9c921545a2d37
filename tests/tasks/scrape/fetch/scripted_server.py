"""A scripted HTTP server on 127.0.0.1 for the fetcher's tests: one thread, raw bytes, every way to misbehave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType

Handler = Callable[["Exchange"], Awaitable[None]]


def page(title: str = "Town notes", text: str = "The bridge will cost more than the council had expected.") -> bytes:
    """A small HTML page."""
    return f"<html><head><title>{title}</title></head><body><p>{text}</p></body></html>".encode()


class Exchange:
    """One request and the stream its answer is written to."""

    def __init__(self, path: str, headers: dict[str, str], writer: asyncio.StreamWriter, number: int) -> None:
        self.path, self.headers, self.writer, self.number = path, headers, writer, number
        """`number` counts the requests for this path, from 1."""

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, status: int = 200, headers: dict[str, str] | None = None, body: bytes = b"", *, length: int | None = None
    ) -> None:
        """A whole answer; `length` is a Content-Length other than the body's (-1: none)."""
        fields = dict(headers or {})
        if length != -1:
            fields.setdefault("Content-Length", str(len(body) if length is None else length))
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.raw(head.encode("latin-1") + b"\r\n" + body)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.writer.transport.abort()


async def not_found(exchange: Exchange) -> None:
    await exchange.answer(404)


class ScriptedServer:
    """Serves `routes` (path to handler); other paths are 404, as is /robots.txt unless it is scripted."""

    def __init__(self, routes: dict[str, Handler] | None = None, default: Handler = not_found) -> None:
        self.routes = dict(routes or {})
        self.default = default
        self.requests: list[tuple[float, str]] = []
        self.counts: Counter[str] = Counter()
        self.active = 0
        self.most_active = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def pages_requested(self) -> int:
        """Requests but those for robots.txt."""
        return sum(count for path, count in self.counts.items() if path != "/robots.txt")

    def times(self, path: str) -> list[float]:
        return [moment for moment, asked in self.requests if asked == path]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1000)
        self.port = int(server.sockets[0].getsockname()[1])
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                try:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                path = head[0].split(" ")[1]
                headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
                self.requests.append((time.monotonic(), path))
                self.counts[path] += 1
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                try:
                    handler = self.routes.get(path, self.default if path != "/robots.txt" else not_found)
                    await handler(Exchange(path, headers, writer, self.counts[path]))
                except ConnectionError:
                    return
                finally:
                    self.active -= 1
                if writer.is_closing():
                    return
        finally:
            self._tasks.discard(task)
            writer.close()

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


def answers(
    status: int = 200, headers: dict[str, str] | None = None, body: bytes = b"", *, length: int | None = None
) -> Handler:
    """A handler that always gives the same answer."""

    async def handle(exchange: Exchange) -> None:
        await exchange.answer(status, headers, body, length=length)

    return handle


def html(body: bytes | None = None, **headers: str) -> Handler:
    """A handler that serves a page."""
    fields = {"Content-Type": "text/html; charset=utf-8", **{n.replace("_", "-"): v for n, v in headers.items()}}
    return answers(200, fields, page() if body is None else body)


def redirects(location: str, status: int = 302) -> Handler:
    """A handler that redirects."""
    return answers(status, {"Location": location})
