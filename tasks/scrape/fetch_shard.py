"""A shard of the URL list: opened, filled from the spool or the network, and written in list order."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import orjson
import zstandard
from pydantic import BaseModel, ConfigDict

from tasks.progress import StageReport
from tasks.records import ZSTD_LEVEL, read_lines
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchOutcome, FetchReason
from tasks.scrape.fetch_spool import NO_FACTS, Row, Spool, SpooledPage
from tasks.scrape.public_suffix import site_of_url
from tasks.scrape.warc_index import IndexEntry, write_part
from tasks.scrape.warc_writer import gzip_member, warcinfo_record

RECENT_KEYS = 1 << 17
EARLIEST_DATE = "1970-01-01T00:00:00Z"
NOT_MODIFIED = 304


class UrlKeys:
    """A set of URLs kept as 64-bit digests: 8 bytes each, so that a hundred million fit in memory.

    Two of n URLs share a digest with a chance of about n^2 / 2^65: one in ten thousand for 60 million.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted = np.empty(0, dtype=np.uint64)

    def add(self, url: str) -> bool:
        """Add a URL; True when it was new. Fragments do not count."""
        text = url.partition("#")[0]
        key = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        if key in self._recent:
            return False
        wanted = np.uint64(key)
        place = int(self._sorted.searchsorted(wanted))
        if place < len(self._sorted) and self._sorted[place] == wanted:
            return False
        self._recent.add(key)
        if len(self._recent) >= RECENT_KEYS:
            fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
            self._sorted = np.sort(np.concatenate([self._sorted, fresh]), kind="stable")
            self._recent.clear()
        return True


class FinishedShard(BaseModel):
    """The marker of a shard, written after its files: sizes, and what it adds to the report."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, int]
    report: StageReport


class ShardFiles:
    """Names of one shard's files. `directory` is published, `scratch` is not."""

    def __init__(self, directory: Path, scratch: Path, index: int) -> None:
        self.directory, self.scratch = directory, scratch
        self.pages = f"pages-{index:05d}.warc.gz"
        self.outcomes = scratch / f"outcomes-{index:05d}.zst"
        self.log = scratch / f"log-{index:05d}.zst"
        self.index = scratch / f"index-{index:05d}.cdxj"
        self.spool = scratch / f"spool-{index:05d}"
        self.marker = scratch / f"shard-{index:05d}.json"

    def finished(self) -> FinishedShard | None:
        """The marker of an earlier attempt, if all files are there in their full size."""
        try:
            marker = FinishedShard.model_validate_json(self.marker.read_bytes())
            paths = {name: (self.directory / self.pages if name == self.pages else self.scratch / name)
                     for name in marker.files}  # fmt: skip
            if all(paths[name].stat().st_size == size for name, size in marker.files.items()):
                return marker
        except (OSError, ValueError):
            pass
        return None


def read_outcomes(path: Path) -> Iterable[dict[str, object]]:
    """The rows of an outcome file."""
    for line in read_lines(path):
        yield orjson.loads(line)


class OpenShard:
    """A shard whose URLs are being fetched."""

    def __init__(self, files: ShardFiles, urls: Sequence[str], is_new: Sequence[bool]) -> None:
        """`is_new[i]` is False when `urls[i]` stands earlier in the list."""
        self.files, self.urls = files, urls
        self._spool = Spool(files.spool)
        self._duplicates = [index for index, new in enumerate(is_new) if not new]
        self.todo = [index for index, new in enumerate(is_new) if new and index not in self._spool.pages]
        self._num_left = len(self.todo)
        self.num_ready = len(urls) - len(self.todo)
        """URLs that need no fetching any more."""
        self.complete = asyncio.Event()
        if not self.todo:
            self.complete.set()

    def keep(self, rows: Sequence[Row]) -> None:
        """Some more URLs are finished."""
        self._spool.append(rows)
        self._num_left -= len(rows)
        if self._num_left == 0:
            self.complete.set()

    def close(self) -> None:
        """Leave the shard as it is; a rerun goes on from its spool."""
        self._spool.close()

    def write(self, config: FetchConfig, page_keys: UrlKeys) -> FinishedShard:
        """Write the shard's files in list order, then its marker. `page_keys` are the pages of all shards before."""
        report = StageReport(unit="urls", num_in=len(self.urls))
        rows: list[bytes] = []
        log: list[bytes] = []
        kept: list[SpooledPage] = []
        pages = self._spool.pages
        for index in self._duplicates:
            outcome = FetchOutcome(self.urls[index], FetchReason.DUPLICATE_URL)
            pages[index] = SpooledPage(outcome, NO_FACTS, 0, 0)
        for index in range(len(self.urls)):
            page = pages[index]
            outcome = page.outcome
            if outcome.reason == FetchReason.OK and not page_keys.add(outcome.final_url):
                outcome.reason, outcome.num_bytes = FetchReason.DUPLICATE_PAGE, 0
            if outcome.reason == FetchReason.OK:
                kept.append(page)
                report.num_out += 1
                report.count("page_bytes", outcome.num_bytes)
                if outcome.status == NOT_MODIFIED:
                    report.count("not_modified")
            else:
                report.drop(outcome.reason.value, outcome.url)
            report.count("requests", outcome.num_requests)
            report.place(site_of_url(outcome.url), outcome.reason.value)
            if outcome.status:
                report.statuses[str(outcome.status)] = report.statuses.get(str(outcome.status), 0) + 1
            rows.append(outcome.to_json())
            log.append(outcome.to_log())
        self._write_pages(config, kept)
        write_rows(self.files.outcomes, rows)
        write_rows(self.files.log, log)
        sizes = {path.name: path.stat().st_size for path in (self.files.outcomes, self.files.log, self.files.index)}
        sizes[self.files.pages] = (self.files.directory / self.files.pages).stat().st_size
        marker = FinishedShard(files=sizes, report=report)
        write_whole(self.files.marker, [marker.model_dump_json().encode()])
        self.close()
        self.files.spool.unlink()
        return marker

    def _write_pages(self, config: FetchConfig, kept: Sequence[SpooledPage]) -> None:
        """Write the WARC file and its part of the index."""
        date = min((page.facts.date for page in kept), default=EARLIEST_DATE)
        robots = "classic" if config.respect_robots else "ignore"
        first = gzip_member(warcinfo_record(self.files.pages, date, config.user_agent_header, robots))
        records = (self._spool.read_record(page) for page in kept)
        write_whole(self.files.directory / self.files.pages, [first], records)
        entries: list[IndexEntry] = []
        offset = len(first)
        for page in kept:
            facts, length = page.facts, page.num_record_bytes
            entries.append(
                IndexEntry(
                    url=page.outcome.final_url,
                    date=facts.date,
                    mime=facts.mime,
                    status=facts.status,
                    digest=facts.digest,
                    offset=offset,
                    length=length,
                    file_name=self.files.pages,
                    etag=facts.etag,
                    last_modified=facts.last_modified,
                )
            )
            offset += length
        write_part(self.files.index, entries)


def write_whole(path: Path, *parts: Iterable[bytes]) -> None:
    """Write a file under another name, sync it and rename it: it is there in full or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        for part in parts:
            for piece in part:
                stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def write_rows(path: Path, rows: Iterable[bytes]) -> None:
    """Write rows as one zstd frame; files of this kind can be joined."""
    text = b"".join(row + b"\n" for row in rows)
    write_whole(path, [zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(text)])
