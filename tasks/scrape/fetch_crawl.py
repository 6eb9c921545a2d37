"""The crawl: URLs go to the network in list order, pages come back in any order, shards are written in list order.

Shards overlap: while the slow pages of one are awaited, the URLs of the next are under way, up to
`max_queued_urls` of them. A shard is written when it and all before it are complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tasks.progress import StageReport
from tasks.scrape.address_guard import Lookup, system_lookup
from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchedPage, FetchReason, PageFacts
from tasks.scrape.fetch_shard import OpenShard, ShardFiles, UrlKeys, read_outcomes
from tasks.scrape.fetch_spool import NO_FACTS
from tasks.scrape.media_type import media_type
from tasks.scrape.warc_writer import gzip_member, response_record, sha1_digest

MAX_VALIDATOR_CHARACTERS = 1000
INLINE_BYTES = 1 << 16
"""Records up to this size are compressed on the event loop: handing them to a thread costs more than the work."""


def page_facts(page: FetchedPage) -> PageFacts:
    """What the index says about a page."""
    return PageFacts(
        date=page.date,
        status=page.status,
        mime=media_type(page.header(b"content-type")) or "unk",  # pywb's word for a page without a type
        digest=sha1_digest(page.body),
        etag=page.header(b"etag")[:MAX_VALIDATOR_CHARACTERS],
        last_modified=page.header(b"last-modified")[:MAX_VALIDATOR_CHARACTERS],
    )


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
    reports: list[StageReport] = field(default_factory=list)
    """Of the finished shards, in order."""
    shards: list[ShardFiles] = field(default_factory=list)

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
        self._open_urls = asyncio.Semaphore(resources.max_queued_urls)
        opened: list[OpenShard] = []
        self._threads = ThreadPoolExecutor(resources.workers, thread_name_prefix="url2lm-warc")
        try:
            async with PageFetcher(self.config, self.lookup) as fetcher, asyncio.TaskGroup() as group:
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
                        await self._open_urls.acquire()
                        group.create_task(self._fetch(fetcher, shard, place))
                self._queue.put_nowait(None)
        finally:
            self._threads.shutdown(wait=True)
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
            self._finish(files, done.report)
            self.num_finished += len(chunk)
            return None
        self._all_finished = False
        shard = OpenShard(files, chunk, is_new)
        self.num_finished += shard.num_ready
        return shard

    def _finish(self, files: ShardFiles, report: StageReport) -> None:
        files.spool.unlink(missing_ok=True)
        self.shards.append(files)
        self.reports.append(report)
        self._open_shards.release()

    async def _fetch(self, fetcher: PageFetcher, shard: OpenShard, place: int) -> None:
        outcome, page = await fetcher.fetch(shard.urls[place])
        record, facts = b"", NO_FACTS
        if page is not None:
            facts = page_facts(page)
            plain = response_record(outcome.url, page, facts.digest)
            if len(plain) <= INLINE_BYTES:
                record = gzip_member(plain)
            else:
                loop = asyncio.get_running_loop()
                record = await loop.run_in_executor(self._threads, gzip_member, plain)
        shard.keep(place, outcome, facts, record)
        self.num_finished += 1
        self.num_pages += page is not None
        self._open_urls.release()

    async def _write_in_order(self, opened: list[OpenShard]) -> None:
        loop = asyncio.get_running_loop()
        while (shard := await self._queue.get()) is not None:
            await shard.complete.wait()
            done = await loop.run_in_executor(self._threads, shard.write, self.config, self._page_keys)
            opened.remove(shard)
            self._finish(shard.files, done.report)
