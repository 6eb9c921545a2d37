"""The server both sides fetch from, as a process of its own: small pages, one asyncio protocol, nothing else."""

from __future__ import annotations

import argparse
import asyncio
import sys

PARAGRAPH = b"<p>The council met on Tuesday and talked about the bridge for most of the evening.</p>"


def answer(path: bytes, num_paragraphs: int) -> bytes:
    """A 200 with a small page that names its path, or a 404 for robots.txt."""
    if path == b"/robots.txt":
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    body = b"<html><head><title>%s</title></head><body>%s</body></html>" % (path, PARAGRAPH * num_paragraphs)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


class PageProtocol(asyncio.Protocol):
    """Keep-alive HTTP/1.1 with pipelining; honours Connection: close."""

    num_paragraphs = 20

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while b"\r\n\r\n" in self._waiting:
            head, self._waiting = self._waiting.split(b"\r\n\r\n", 1)
            self._transport.write(answer(head.split(b" ", 2)[1], self.num_paragraphs))
            if b"connection: close" in head.lower() or (head.startswith(b"GET") and b"HTTP/1.0" in head):
                self._transport.close()


async def serve(num_paragraphs: int) -> None:
    """Serve until killed; the port is the first line of the output."""
    PageProtocol.num_paragraphs = num_paragraphs
    server = await asyncio.get_running_loop().create_server(PageProtocol, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paragraphs", type=int, default=20)
    try:
        asyncio.run(serve(parser.parse_args().paragraphs))
    except KeyboardInterrupt:
        sys.exit(0)
