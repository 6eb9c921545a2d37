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
from tasks.scrape.filter_blocks import BlockSieve
from tasks.scrape.filter_reasons import FilterReason, Tally
from tasks.scrape.filter_urls import UrlFilter
from tasks.scrape.megatron_filter import MegatronFilter
from tasks.scrape.public_suffix import public_suffixes
from tasks.scrape.url_dedup import Dedup
from tasks.stages import Stage
from tasks.store import StageBuild

OUTPUT_NAME = "urls.txt"
ROW_SUFFIXES = (".jsonl", ".json", ".ndjson")
ROWS_PER_PIECE = 20_000
PIECE_BYTES = 2 << 20
"""A piece is at least that long: large enough for array operations, small enough for the processor's cache."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def filter_url_list(build: StageBuild, config: FilterConfig, urls: UrlList) -> UrlList:
    """Judge every line of the list; urls.txt holds the kept URLs in order.

    Raises UserError for a bad entry of a list and for an empty list, StageError when no URL is kept, and
    CorruptInputError for a damaged compressed file.
    """
    tally = Tally()
    rules = MegatronFilter() if config.preset == "megatron" else UrlFilter(config)
    sieve = BlockSieve(rules)
    dedup = Dedup(build.scratch / "dedup", tally, config.resources.max_urls_in_memory)
    cap = config.max_urls_per_domain if config.preset != "megatron" else None
    admit = SiteCap(cap, tally).admit if cap is not None else _all
    report = StageReport(unit="urls")
    build.progress.start("filter URLs", urls.num_urls, "urls")
    for data in _pieces(build.path_of(urls), tally):
        dedup.add(sieve.sift(data, tally))
        build.progress.advance(data.count(b"\n") + 1)
    sieve.finish(tally)
    temporary = build.directory / f"{OUTPUT_NAME}.tmp"
    with temporary.open("wb") as output:
        for text in dedup.finish():
            kept = admit(text)
            output.write(kept)
            report.num_out += kept.count(b"\n")
    tally.fill(report)
    report.num_in = report.num_out + sum(report.dropped.values())
    if report.num_in == 0:
        raise UserError("urls", urls.path, "the list is empty", "Give a file with one URL a line.")
    if report.num_out == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        hint = ""
        if FilterReason.PRIVATE_HOST in report.dropped:
            hint = ". Hosts of your own network are allowed by --set 'filter.allow_private_hosts=[\"HOST:PORT\"]'"
        raise StageError(f"the filter kept none of {report.num_in} URLs: {reasons}{hint}")
    temporary.replace(build.directory / OUTPUT_NAME)
    return build.publish(UrlList, report, num_urls=report.num_out)


def _all(text: bytes) -> bytes:
    return text


class SiteCap:
    """Keeps the first `cap` URLs of each site."""

    def __init__(self, cap: int, tally: Tally) -> None:
        self._cap = cap
        self._tally = tally
        self._counts: Counter[str] = Counter()
        self._suffixes = public_suffixes(private_domains=True)

    def admit(self, text: bytes) -> bytes:
        """Those of the URLs (which passed the filter), a line each, whose site is not full yet."""
        kept: list[str] = []
        for url in text.decode().split("\n")[:-1]:
            match = HEAD.match(url)
            host = canonical_host(split_authority(match.group(2)).host) if match else url
            site = self._suffixes.registrable(host) or host
            if self._counts[site] >= self._cap:
                self._tally.drop(FilterReason.DOMAIN_CAP, url)
            else:
                self._counts[site] += 1
                kept.append(f"{url}\n")
        return "".join(kept).encode()


def _pieces(directory: Path, tally: Tally) -> Iterator[bytes]:
    """The lines of every file of a list, many at a time."""
    for path in sorted(directory.iterdir()):
        if path.name.startswith((".", "manifest.")) or not path.is_file():
            continue
        yield from _rows(path, tally) if _holds_rows(path) else _texts(path)


def _holds_rows(path: Path) -> bool:
    """True for JSON lines: the name says so, or the file begins with a bracket, as no URL does."""
    if any(suffix.lower() in ROW_SUFFIXES for suffix in path.suffixes):
        return True
    return next(read_bytes(path), b"").removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _texts(path: Path) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    first = True
    for piece in read_bytes(path):
        size += len(piece)
        if size < PIECE_BYTES or b"\n" not in piece:
            parts.append(piece)
            continue
        whole, _, tail = piece.rpartition(b"\n")
        yield _lines(b"".join((*parts, whole)), first)
        parts, size, first = [tail], len(tail), False
    if any(parts):
        yield _lines(b"".join(parts), first)


def _lines(data: bytes, is_first: bool) -> bytes:
    if is_first:
        data = data.removeprefix(BYTE_ORDER_MARK)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    return data


def _rows(path: Path, tally: Tally) -> Iterator[bytes]:
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
            yield "\n".join(urls).encode()
            urls = []
    if urls:
        yield "\n".join(urls).encode()


def _url_of(line: bytes) -> str | None:
    """The field `url` of a JSON row; one that is blank counts as none, or the row would vanish from the count."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    url = row.get("url") if isinstance(row, dict) else row
    if not isinstance(url, str):
        return None
    url = url.strip()
    # a line end inside is a control character like any other, and no end of a record
    return url.replace("\n", "\v") or None


FILTER = Stage(
    name="filter",
    version=3,
    config=FilterConfig,
    inputs=(UrlList,),
    output=UrlList,
    run=filter_url_list,
    description="Choose the URLs that are worth fetching",
)
