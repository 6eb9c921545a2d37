"""A server that misbehaves by the number in the path: one kind of fault for each remainder. Started by hostile.py."""

from __future__ import annotations

import asyncio
import gzip
import sys
from urllib.parse import urlsplit

PAGE = (
    b"<html><head><title>t</title></head><body>"
    + b"<p>Words about the bridge and the town.</p>" * 40
    + b"</body></html>"
)
HTML = "Content-Type: text/html\r\n"
BOMB = gzip.compress(b"<html>" + bytes(100_000_000))
PACKED = gzip.compress(PAGE)
KINDS = 40
"""Kinds by number % KINDS: those not listed in `answer` are good pages."""
ROBOTS = b"User-agent: *\nDisallow: /forbidden\n"


def whole(body: bytes, headers: str = HTML, status: int = 200, length: int | None = None) -> bytes:
    """An answer; `length` is a Content-Length other than the body's."""
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {size}\r\n\r\n".encode() + body


class Hostile:
    """Answers by kind; remembers which paths were busy once."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def answer(self, path: str, writer: asyncio.StreamWriter) -> bool:
        """Write the answer for a path; False when the connection ends with it."""
        first = path not in self.asked
        self.asked.add(path)
        number = int(path.rsplit("/", 1)[1]) if path.rsplit("/", 1)[1].isdigit() else 0
        kind = number % KINDS
        if path == "/robots.txt":
            writer.write(whole(ROBOTS, "Content-Type: text/plain\r\n"))
        elif path.startswith("/forbidden"):
            writer.write(whole(PAGE))
        elif kind == 1:  # slow
            await asyncio.sleep(0.5)
            writer.write(whole(PAGE))
        elif kind == 2:  # drips until the client has enough
            writer.write(whole(b"<html>", length=10_000))
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.2)
        elif kind == 3:
            writer.write(whole(b"", f"Location: {path}\r\n", 302))
        elif kind == 4:
            writer.write(whole(b"", f"Location: /{number + KINDS}/{number}\r\n", 302))
        elif kind == 5:
            writer.write(whole(BOMB, HTML + "Content-Encoding: gzip\r\n"))
        elif kind == 6:  # declared Latin-1, is UTF-8
            writer.write(whole(PAGE + "é".encode(), "Content-Type: text/html; charset=iso-8859-1\r\n"))
        elif kind == 7:
            writer.transport.abort()
            return False
        elif kind == 8:
            writer.write(whole(b"", "Retry-After: 0\r\n", 429) if first else whole(PAGE))
        elif kind == 9:
            writer.write(whole(PAGE[:50], length=len(PAGE)))
            writer.close()
            return False
        elif kind == 10:
            writer.write(whole(PACKED[:-9], HTML + "Content-Encoding: gzip\r\n"))
        elif kind == 11:
            writer.write(whole(b"%PDF-1.7", "Content-Type: application/pdf\r\n"))
        elif kind == 12:
            writer.write(whole(b"", "Location: http://10.0.0.1/\r\n", 301))
        elif kind == 13:
            writer.write(whole(b"gone", status=404))
        elif kind == 14:
            writer.write(b"not http at all\r\n\r\n")
            writer.close()
            return False
        elif kind == 15:
            writer.write(whole(b"", "Location: /0\r\n", 301))
        elif kind == 16:
            writer.write(whole(PACKED, HTML + "Content-Encoding: gzip\r\n"))
        else:
            writer.write(whole(PAGE))
        await writer.drain()
        return True

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not await self.answer(urlsplit(head.split(b" ")[1].decode()).path, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


async def main() -> None:
    """Listen on all addresses, so that 127.0.0.1, 127.0.0.2 ... are many hosts."""
    server = await asyncio.start_server(Hostile().connection, "0.0.0.0", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
