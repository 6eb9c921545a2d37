"""A small real web site on loopback, in a process of its own: articles, a page that is there twice, faults."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NUM_ARTICLES = 24
WORDS = (
    "harbour master gate dawn boat tide market brass key lamp rope captain letter window river stone bridge winter "
    "garden morning paper shadow music table bread engine signal island weather north village road school number "
    "green book evening water light house people town council plan hall paint year rain square story friend voice"
).split()


def article(number: int) -> bytes:
    """A page of English sentences drawn from a seed: the same in every process."""
    draw = random.Random(number)
    paragraphs = []
    for _ in range(6):
        sentences = []
        for _ in range(5):
            words = [draw.choice(WORDS) for _ in range(draw.randint(7, 13))]
            sentences.append(
                f"The {words[0]} of the {words[1]} was near the {' and the '.join(words[2:5])} when it {' '.join(words[5:])}."
            )
        paragraphs.append(f"<p>{' '.join(sentences)}</p>")
    body = "".join(paragraphs)
    return f"<html><head><title>Story {number}</title></head><body><article><h1>Story {number}</h1>{body}</article></body></html>".encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_file: Path
    delay_seconds = 0.0

    def do_GET(self) -> None:
        with self.log_file.open("a") as log:
            log.write(self.path + "\n")
        status, kind, body = 404, "text/html", b"<html><body>gone</body></html>"
        name = self.path.strip("/")
        if self.path == "/robots.txt":
            status, kind, body = 200, "text/plain", b"User-agent: *\nDisallow: /private/\n"
        elif name.startswith("story-"):
            time.sleep(self.delay_seconds)
            number = int(name.removeprefix("story-"))
            # The last article is a copy of the first under another address.
            status, body = 200, article(0 if number == NUM_ARTICLES - 1 else number)
        elif name.startswith("private"):
            status, body = 200, article(99)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def url_lines(port: int) -> list[str]:
    site = f"http://127.0.0.1:{port}"
    stories = [f"{site}/story-{number}" for number in range(NUM_ARTICLES)]
    return [*stories, f"{site}/gone", f"{site}/private/notes", stories[0] + "#part", "not a url", "http://10.0.0.1/x"]


@contextlib.contextmanager
def serving(log_file: Path, delay_seconds: float = 0.0) -> Iterator[int]:
    """Serve while the block runs; yields the port. Every request's path is a line of `log_file`."""
    command = [sys.executable, __file__, str(log_file), str(delay_seconds)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


if __name__ == "__main__":
    Handler.log_file, Handler.delay_seconds = Path(sys.argv[1]), float(sys.argv[2])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.daemon_threads = True
        print(httpd.server_address[1], flush=True)
        httpd.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        httpd.serve_forever()
