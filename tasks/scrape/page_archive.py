"""Pages become WARC records: the first small ones at once, all others in processes of their own.

Hashing and compressing a page costs about as much as fetching it. The event loop hands pages over in batches, as
pickles after their length, over a pair of sockets whose other end is the standard input and output of

    python -m tasks.scrape.page_archive     (started by PageArchive, not by people)

which ends when its input does, so also when its parent is killed. Nothing in it parses what servers sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Generic, TypeVar

from tasks.errors import TransientError
from tasks.scrape.fetch_outcome import FetchedPage, PageFacts
from tasks.scrape.media_type import media_type
from tasks.scrape.warc_writer import gzip_member, response_record, sha1_digest

LENGTH = struct.Struct("<Q")
MAX_VALIDATOR_CHARACTERS = 1000
INLINE_PAGES = 256
"""Small pages that are worth no process: a short crawl is over before one would have started."""
INLINE_BYTES = 1 << 16
BATCH_PAGES = 64
BATCH_BYTES = 1 << 20
BATCH_SECONDS = 0.02
MAX_WAITING_BYTES = 1 << 25
"""Bytes of pages that may wait for a process; who brings more has to wait."""
CLOSE_SECONDS = 10.0

Record = tuple[PageFacts, bytes]
"""What the index says of a page, and its record as a gzip member."""
Item = TypeVar("Item")


def page_facts(page: FetchedPage) -> PageFacts:
    """What the index says about a page."""
    fields: dict[bytes, bytes] = {}
    for name, value in page.headers:
        fields.setdefault(name.lower(), value)
    return PageFacts(
        date=page.date,
        status=page.status,
        mime=media_type(fields.get(b"content-type", b"").decode("latin-1")) or "unk",  # pywb's word for none
        digest=sha1_digest(page.body),
        etag=fields.get(b"etag", b"").decode("latin-1")[:MAX_VALIDATOR_CHARACTERS],
        last_modified=fields.get(b"last-modified", b"").decode("latin-1")[:MAX_VALIDATOR_CHARACTERS],
    )


def page_record(requested_url: str, page: FetchedPage) -> Record:
    """The facts and the record of a page; the same bytes in every process."""
    facts = page_facts(page)
    return facts, gzip_member(response_record(requested_url, page, facts.digest))


class PageArchive(Generic[Item]):
    """Takes pages from the event loop, each with an item of the caller's that comes back with its record."""

    def __init__(self, max_processes: int, keep: Callable[[Sequence[tuple[Item, Record]]], None]) -> None:
        """`keep` gets the items with their records, in the event loop, in any order."""
        self._max_processes, self._keep = max_processes, keep
        self._waiting: deque[tuple[Item, str, FetchedPage]] = deque()
        self.num_waiting_bytes = 0
        """Bytes of pages that no process has yet."""
        self._num_inline = 0
        self._under_way: dict[int, list[tuple[Item, str, FetchedPage]]] = {}
        """What each process is at work on."""
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self._children: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._ends = False

    @property
    def process_ids(self) -> list[int]:
        """Of the processes started so far."""
        return [child.pid for child, _ in self._children]

    @property
    def num_processes(self) -> int:
        """How many processes were started."""
        return len(self._children)

    async def put(self, group: asyncio.TaskGroup, item: Item, requested_url: str, page: FetchedPage) -> None:
        """Hand a page over; waits while too many do. Tasks that speak to processes run in `group`."""
        if self._num_inline < INLINE_PAGES and len(page.body) <= INLINE_BYTES:
            self._num_inline += 1
            self._keep([(item, page_record(requested_url, page))])
            return
        self._waiting.append((item, requested_url, page))
        self.num_waiting_bytes += len(page.body)
        self._some.set()
        num_running = len(self._children)
        if num_running == 0 or (num_running < self._max_processes and len(self._waiting) > 2 * BATCH_PAGES):
            group.create_task(self._serve(*self._start()))
        while self.num_waiting_bytes > MAX_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()

    def finish(self) -> None:
        """No more pages will come: the tasks end when all are kept."""
        self._ends = True
        self._some.set()

    def close(self) -> None:
        """End the processes; pages that were handed over and are not kept yet are kept now."""
        left = [entry for batch in self._under_way.values() for entry in batch] + list(self._waiting)
        self._under_way.clear()
        self._waiting.clear()
        for item, url, page in left:
            self._keep([(item, page_record(url, page))])
        for _, ours in self._children:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)  # now: a transport closes in the next turn of the loop only
            ours.close()
        for child, _ in self._children:
            try:
                child.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        ours, theirs = socket.socketpair()
        with theirs:
            child = subprocess.Popen(
                [sys.executable, "-m", "tasks.scrape.page_archive"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C is for the crawl, which ends its processes itself
            )
        self._children.append((child, ours))
        return child, ours

    async def _serve(self, child: subprocess.Popen[bytes], ours: socket.socket) -> None:
        """Speak to one process until there are no more pages. Raises TransientError when it ends before."""
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            while batch := await self._next_batch():
                self._under_way[child.pid] = batch
                data = pickle.dumps([entry[1:] for entry in batch], protocol=pickle.HIGHEST_PROTOCOL)
                writer.write(LENGTH.pack(len(data)))
                writer.write(data)
                await writer.drain()
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                records: list[Record] = pickle.loads(await reader.readexactly(length))
                del self._under_way[child.pid]
                self._keep([(entry[0], record) for entry, record in zip(batch, records, strict=True)])
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            text = f"the process that compresses pages (number {child.pid}) ended by itself; was it killed?"
            raise TransientError(f"{text} Finished pages are kept.") from error
        finally:
            writer.transport.abort()

    async def _next_batch(self) -> list[tuple[Item, str, FetchedPage]]:
        """Up to BATCH_PAGES pages, after a short wait for more of them; none at the end."""
        batch: list[tuple[Item, str, FetchedPage]] = []
        num_bytes = 0
        while not batch:
            while not self._waiting:
                if self._ends:
                    return []
                self._some.clear()
                await self._some.wait()
            if len(self._waiting) < BATCH_PAGES and not self._ends:
                await asyncio.sleep(BATCH_SECONDS)
            while self._waiting and len(batch) < BATCH_PAGES and num_bytes < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                num_bytes += len(batch[-1][2].body)
        self.num_waiting_bytes -= num_bytes
        self._room.set()
        return batch


def serve(messages: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each batch of (URL, page) with its records until the input ends."""
    while len(head := messages.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        if len(data := messages.read(length)) < length:
            return
        data = pickle.dumps([page_record(*entry) for entry in pickle.loads(data)], protocol=pickle.HIGHEST_PROTOCOL)
        answers.write(LENGTH.pack(len(data)) + data)
        answers.flush()


def main() -> None:
    """Serve one parent, which is gone when the connection breaks or is reset."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except ConnectionError:
        os._exit(0)


if __name__ == "__main__":
    main()
