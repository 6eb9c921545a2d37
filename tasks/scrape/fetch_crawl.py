"""The crawl: URLs go to the network in list order, pages come back in any order, shards are written in list order.

Shards overlap: while the slow pages of one are awaited, the URLs of the next are under way, up to
`max_queued_urls` of them. A shard is written when it and all before it are complete. The URLs of a site wait in a
queue of its own that a few tasks work off: a task for each waiting URL would cost more than fetching a small page.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.errors import StageError
from tasks.progress import StageReport
from tasks.scrape.address_guard import Lookup, system_lookup
from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchOutcome, FetchReason
from tasks.scrape.fetch_shard import OpenShard, ShardFiles, UrlKeys, read_outcomes
from tasks.scrape.fetch_spool import NO_FACTS, Row
from tasks.scrape.page_archive import PageArchive, Record

Finished = tuple[OpenShard, int, FetchOutcome]
"""A URL that was fetched: its shard, its place there, and how it ended."""
MIN_SITE_TASKS = 16
"""Tasks of a site with few requests in flight: the pages of a URL shortener are elsewhere, and some wait for a retry.
With as many tasks as requests none has to wait for its turn."""


@dataclass(slots=True)
class SiteQueue:
    """URLs of one site that wait, and the tasks that work on them."""

    waiting: deque[tuple[OpenShard, int]] = field(default_factory=deque)
    num_tasks: int = 0


def site_of(url: str) -> str:
    """What stands where a URL has its host and port."""
    parts = url.split("/", 3)
    return parts[2].lower() if len(parts) > 2 else ""


@dataclass
class Crawl:
    """One pass over a list. `run` is a coroutine; the counters may be read from another thread meanwhile."""

    config: FetchConfig
    directory: Path
    """Where pages-*.warc.gz are written."""
    scratch: Path
    """Where spools, outcome parts and markers are."""
    lookup: Lookup = system_lookup
    num_finished: int = 0
    """URLs that have an outcome."""
    num_pages: int = 0
    """Pages among them, before those are counted twice that redirects brought twice."""
    shards: list[ShardFiles] = field(default_factory=list)
    """The finished ones, in order."""

    def __post_init__(self) -> None:
        self._url_keys, self._page_keys = UrlKeys(), UrlKeys()
        self._all_finished = True
        self._stop = False
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End the crawl from another thread: pages in flight are given up, finished ones stay."""
        self._stop = True
        if (task := self._task) is not None:
            # the loop may have ended this moment
            with contextlib.suppress(RuntimeError):
                task.get_loop().call_soon_threadsafe(task.cancel)

    async def run(self, urls: Iterator[str]) -> None:
        """Fetch every URL that has no outcome yet. When it is cancelled, what is finished stays finished."""
        self._task = asyncio.current_task()
        if self._stop:
            raise asyncio.CancelledError
        resources = self.config.resources
        window = resources.max_queued_urls // self.config.urls_per_shard + 2
        self._queue: asyncio.Queue[OpenShard | None] = asyncio.Queue()
        self._open_shards = asyncio.Semaphore(window)
        self._num_open, self._room = 0, asyncio.Event()
        self._sites: dict[str, SiteQueue] = {}
        self._max_site_tasks = max(MIN_SITE_TASKS, resources.max_requests_per_host)
        opened: list[OpenShard] = []
        archive = self._archive = PageArchive[Finished](resources.workers, self._keep)
        try:
            async with PageFetcher(self.config, self.lookup) as fetcher, asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._write_in_order(opened))
                for index in itertools.count():
                    chunk = list(itertools.islice(urls, self.config.urls_per_shard))
                    if not chunk:
                        break
                    await self._open_shards.acquire()
                    if (shard := self._open(index, chunk)) is None:
                        continue
                    opened.append(shard)
                    self._queue.put_nowait(shard)
                    for place in shard.todo:
                        if self._num_open >= resources.max_queued_urls:
                            self._room.clear()
                            await self._room.wait()
                        self._num_open += 1
                        self._enqueue(fetcher, shard, place)
                self._queue.put_nowait(None)
        finally:
            archive.close()
            for shard in opened:
                shard.close()

    def _open(self, index: int, chunk: list[str]) -> OpenShard | None:
        files = ShardFiles(self.directory, self.scratch, index)
        is_new = [self._url_keys.add(url) for url in chunk]
        # Shards are written in order, so finished ones come first; one behind a gap lost its order.
        done = files.finished() if self._all_finished else None
        if done is not None:
            for row in read_outcomes(files.outcomes):
                if row["reason"] == FetchReason.OK:
                    self._page_keys.add(str(row["final_url"]))
            self._finish(files)
            self.num_finished += len(chunk)
            return None
        self._all_finished = False
        shard = OpenShard(files, chunk, is_new)
        self.num_finished += shard.num_ready
        return shard

    def reports(self) -> Iterator[StageReport]:
        """The reports of the finished shards, in order; read again, because together they can be large."""
        for files in self.shards:
            if (marker := files.finished()) is None:
                raise StageError(f"{files.marker} or the files it names were changed during the crawl")
            yield marker.report

    def _finish(self, files: ShardFiles) -> None:
        files.spool.unlink(missing_ok=True)
        self.shards.append(files)
        self._open_shards.release()

    def _enqueue(self, fetcher: PageFetcher, shard: OpenShard, place: int) -> None:
        site = site_of(shard.urls[place])
        queue = self._sites.get(site)
        if queue is None:
            queue = self._sites[site] = SiteQueue()
        queue.waiting.append((shard, place))
        if queue.num_tasks < self._max_site_tasks:
            queue.num_tasks += 1
            self._group.create_task(self._work(fetcher, site, queue))

    async def _work(self, fetcher: PageFetcher, site: str, queue: SiteQueue) -> None:
        while queue.waiting:
            await self._fetch(fetcher, *queue.waiting.popleft())
        queue.num_tasks -= 1
        if queue.num_tasks == 0:
            del self._sites[site]

    async def _fetch(self, fetcher: PageFetcher, shard: OpenShard, place: int) -> None:
        outcome, page = await fetcher.fetch(shard.urls[place])
        if page is None:
            self._keep([((shard, place, outcome), (NO_FACTS, b""))])
        else:
            await self._archive.put(self._group, (shard, place, outcome), outcome.url, page)

    def _keep(self, finished: Sequence[tuple[Finished, Record]]) -> None:
        """URLs that need nothing any more go to the spools of their shards."""
        rows: dict[OpenShard, list[Row]] = {}
        for (shard, place, outcome), (facts, record) in finished:
            rows.setdefault(shard, []).append((place, outcome, facts, record))
            self.num_pages += bool(record)
        self.num_finished += len(finished)
        self._num_open -= len(finished)
        if self._num_open < self.config.resources.max_queued_urls:
            self._room.set()
        for shard, kept in rows.items():
            shard.keep(kept)

    async def _write_in_order(self, opened: list[OpenShard]) -> None:
        while (shard := await self._queue.get()) is not None:
            await shard.complete.wait()
            await asyncio.to_thread(shard.write, self.config, self._page_keys)
            opened.remove(shard)
            self._finish(shard.files)
        self._archive.finish()
