"""The stage `fetch`: a list of URLs becomes WARC files and the outcome of every URL."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from tasks.artifacts import PageShards, UrlList
from tasks.errors import StageError, TransientError, UserError
from tasks.progress import StageReport, add_reports
from tasks.records import read_lines
from tasks.scrape.fetch_config import INDEX_NAME, FetchConfig
from tasks.scrape.fetch_crawl import Crawl
from tasks.scrape.fetch_outcome import NETWORK_REASONS
from tasks.scrape.fetch_shard import write_whole
from tasks.scrape.warc_index import merge_parts
from tasks.stages import Stage
from tasks.store import StageBuild

OUTCOMES_NAME = "outcomes.jsonl.zst"
LOG_NAME = "fetch.jsonl.zst"
POLL_SECONDS = 0.2
STOP_SECONDS = 30.0
COLLECTION_THRESHOLD = 20_000
DESCRIPTORS_PER_REQUEST = 20
"""Open files allowed for each request in flight: its socket, idle connections kept for their hosts, files."""


def list_urls(directory: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The URLs of a UrlList in order, blank lines left out; rows of a .jsonl file give their field `url`.

    What is no UTF-8 comes with U+FFFD in its place and, like a row without `url`, will be a bad URL.
    """
    for name in names:
        is_rows = ".jsonl" in name
        for line in read_lines(directory / name):
            if not line.strip():
                continue
            text = _row_url(line) if is_rows else line.decode("utf-8", "replace")
            yield text.strip()


def _row_url(line: bytes) -> str:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line[:200].decode("utf-8", "replace")
    url = row.get("url") if isinstance(row, dict) else row
    return url if isinstance(url, str) else line[:200].decode("utf-8", "replace")


def fetch_pages(build: StageBuild, config: FetchConfig, urls: UrlList) -> PageShards:
    """Fetch every URL of the list; write pages-*.warc.gz, their index pages.cdxj,
    outcomes.jsonl.zst and logs/fetch.jsonl.zst.

    Shards are runs of `urls_per_shard` lines and hold their pages in list order, whatever came first. Finished pages
    are kept when the process is stopped or killed; a rerun fetches the others. Raises UserError for an empty list,
    TransientError when the network kept every page away and StageError when there is no page for other reasons.
    """
    if urls.num_urls == 0:
        raise UserError("urls", urls.path, "the list is empty", "Give a file with one URL a line.")
    names = tuple(entry.name for entry in urls.files if entry.name.startswith("urls"))
    crawl = Crawl(config, build.directory, build.scratch)
    build.progress.start("fetch", urls.num_urls, "urls")
    with (
        _stops_in_order(),
        _more_descriptors(config.resources.max_requests * DESCRIPTORS_PER_REQUEST),
        _rarer_collections(),
    ):
        _run_in_thread(build, crawl, list_urls(build.path_of(urls), names))
    report = add_reports(crawl.reports(), "urls")
    if report.num_out == 0:
        raise _nothing_left(build, report)
    _join(crawl, build.directory)
    return build.publish(PageShards, report, num_pages=report.num_out)


def _run_in_thread(build: StageBuild, crawl: Crawl, urls: Iterator[str]) -> None:
    # A thread of its own: the caller may already run an event loop, and it alone may talk to `progress`.
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(crawl.run(urls))
        except BaseException as error:  # noqa: BLE001 - carried to the calling thread, which raises it
            failures.append(error)

    thread = threading.Thread(target=work, name="url2lm-fetch", daemon=True)
    thread.start()
    reported = 0
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            finished = crawl.num_finished
            if finished > reported:
                build.progress.advance(finished - reported)
                reported = finished
    except BaseException:
        # Ctrl-C, or the flow was cancelled: let the pages in flight go, close everything, keep what is finished.
        crawl.stop()
        thread.join(STOP_SECONDS)
        raise
    if failures:
        raise _first(failures[0])


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (`pip install url2lm[speed]`): a fifth less work for small pages, same results."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _join(crawl: Crawl, directory: Path) -> None:
    """Join the parts of all shards: zstd frames may stand one after the other."""
    (directory / "logs").mkdir(exist_ok=True)
    write_whole(directory / OUTCOMES_NAME, (files.outcomes.read_bytes() for files in crawl.shards))
    write_whole(directory / "logs" / LOG_NAME, (files.log.read_bytes() for files in crawl.shards))
    write_whole(directory / INDEX_NAME, merge_parts([files.index for files in crawl.shards], crawl.scratch))


def _nothing_left(build: StageBuild, report: StageReport) -> StageError | TransientError:
    """The error for a crawl without pages. What it left is thrown away, so that the next attempt asks again."""
    for path in (*build.scratch.iterdir(), *build.directory.glob("pages-*.warc.gz")):
        path.unlink()
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
    text = f"none of {report.num_in} URLs brought a page: {reasons}"
    if set(report.dropped) <= {reason.value for reason in NETWORK_REASONS}:
        return TransientError(f"{text}. Is there a network?")
    return StageError(text)


@contextlib.contextmanager
def _stops_in_order() -> Iterator[None]:
    """Let SIGTERM end the crawl as Ctrl-C does: connections are closed and finished pages stay. Someone else's handler,
    and any thread but the main one, which alone may set it, are left as they are."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _rarer_collections() -> Iterator[None]:
    """Let the garbage collector look less often: it walks all waiting tasks each time, a fifth of the crawl's work."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], COLLECTION_THRESHOLD), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _more_descriptors(wanted: int) -> Iterator[None]:
    """Raise this process's soft limit of open files for the time of the crawl, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= ceiling:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FETCH = Stage(
    name="fetch",
    version=2,
    config=FetchConfig,
    inputs=(UrlList,),
    output=PageShards,
    run=fetch_pages,
    description="Fetch pages politely and keep them as WARC files",
)
