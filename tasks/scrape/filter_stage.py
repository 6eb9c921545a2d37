"""The stage `filter`: a list as it was found becomes urls.txt, in order, with a reason for every other line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson

from tasks.artifacts import UrlList
from tasks.errors import StageError, UserError
from tasks.progress import StageReport
from tasks.records import read_bytes, read_lines
from tasks.scrape.canonical_url import HEAD, canonical_host, split_authority
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_reasons import FilterReason, Tally
from tasks.scrape.filter_urls import Sieve, UrlFilter
from tasks.scrape.megatron_filter import MegatronFilter
from tasks.scrape.public_suffix import public_suffixes
from tasks.scrape.url_dedup import Dedup, DiskDedup, MemoryDedup
from tasks.stages import Stage
from tasks.store import StageBuild

OUTPUT_NAME = "urls.txt"
ROW_SUFFIXES = (".jsonl", ".json", ".ndjson")
ROWS_PER_PIECE = 20_000
BYTE_ORDER_MARK = "\ufeff"


def filter_url_list(build: StageBuild, config: FilterConfig, urls: UrlList) -> UrlList:
    """Judge every line of the list; urls.txt holds the kept URLs in order.

    Raises UserError for a bad entry of a list and for an empty list, StageError when no URL is kept, and
    CorruptInputError for a damaged compressed file.
    """
    tally = Tally()
    sieve: Sieve = MegatronFilter() if config.preset == "megatron" else UrlFilter(config)
    in_memory = urls.num_urls <= config.resources.max_urls_in_memory
    dedup: Dedup = MemoryDedup(tally) if in_memory else DiskDedup(build.scratch / "dedup", tally)
    cap = config.max_urls_per_domain if config.preset != "megatron" else None
    admit = SiteCap(cap, tally).admit if cap is not None else _all
    report = StageReport(unit="urls")
    build.progress.start("filter URLs", urls.num_urls, "urls")
    temporary = build.directory / f"{OUTPUT_NAME}.tmp"
    with temporary.open("w", encoding="utf-8", newline="\n") as output:

        def write(kept: list[str]) -> None:
            if kept := admit(kept):
                output.write("\n".join(kept) + "\n")
                report.num_out += len(kept)

        for lines in _pieces(build.path_of(urls), tally):
            write(dedup.add(*sieve.sift(lines, tally)))
            build.progress.advance(len(lines))
        for kept in dedup.finish():
            write(kept)
    tally.fill(report)
    report.num_in = report.num_out + sum(report.dropped.values())
    if report.num_in == 0:
        raise UserError("urls", urls.path, "the list is empty", "Give a file with one URL a line.")
    if report.num_out == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise StageError(f"the filter kept none of {report.num_in} URLs: {reasons}")
    temporary.replace(build.directory / OUTPUT_NAME)
    return build.publish(UrlList, report, num_urls=report.num_out)


def _all(urls: list[str]) -> list[str]:
    return urls


class SiteCap:
    """Keeps the first `cap` URLs of each site."""

    def __init__(self, cap: int, tally: Tally) -> None:
        self._cap = cap
        self._tally = tally
        self._counts: Counter[str] = Counter()
        self._suffixes = public_suffixes(private_domains=True)

    def admit(self, urls: list[str]) -> list[str]:
        """Those of `urls` (which passed the filter) whose site is not full yet."""
        kept: list[str] = []
        for url in urls:
            match = HEAD.match(url)
            host = canonical_host(split_authority(match.group(2)).host) if match else url
            site = self._suffixes.registrable(host) or host
            if self._counts[site] >= self._cap:
                self._tally.drop(FilterReason.DOMAIN_CAP, url)
            else:
                self._counts[site] += 1
                kept.append(url)
        return kept


def _pieces(directory: Path, tally: Tally) -> Iterator[list[str]]:
    """The lines of every file of a list, many at a time; bytes that are no UTF-8 come as half surrogates."""
    for path in sorted(directory.iterdir()):
        if path.name.startswith((".", "manifest.")) or not path.is_file():
            continue
        suffixes = [suffix.lower() for suffix in path.suffixes]
        yield from _rows(path, tally) if any(item in ROW_SUFFIXES for item in suffixes) else _texts(path)


def _texts(path: Path) -> Iterator[list[str]]:
    rest = b""
    first = True
    for piece in read_bytes(path):
        whole, newline, tail = piece.rpartition(b"\n")
        if not newline:
            rest += piece
            continue
        yield _split(rest + whole, first)
        rest, first = tail, False
    if rest:
        yield _split(rest, first)


def _split(data: bytes, is_first: bool) -> list[str]:
    text = data.decode("utf-8", "surrogateescape")
    if is_first:
        text = text.removeprefix(BYTE_ORDER_MARK)
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    return text.split("\n")


def _rows(path: Path, tally: Tally) -> Iterator[list[str]]:
    urls: list[str] = []
    for line in read_lines(path):
        if not line.strip():
            continue
        url = _url_of(line)
        if url is None:
            tally.drop(FilterReason.BAD_ROW, line[:200].decode("utf-8", "backslashreplace"))
            continue
        urls.append(url)
        if len(urls) >= ROWS_PER_PIECE:
            yield urls
            urls = []
    yield urls


def _url_of(line: bytes) -> str | None:
    """The field `url` of a JSON row; one that is blank counts as none, or the row would vanish from the count."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    url = row.get("url") if isinstance(row, dict) else row
    return url if isinstance(url, str) and url.strip() else None


FILTER = Stage(
    name="filter",
    version=2,
    config=FilterConfig,
    inputs=(UrlList,),
    output=UrlList,
    run=filter_url_list,
    description="Choose the URLs that are worth fetching",
)
