"""The stages filter and extract; fetch is in fetch_stage."""

from __future__ import annotations

from pathlib import Path

import orjson

from tasks.artifacts import DocumentShards, PageShards, UrlList
from tasks.engine import map_shards
from tasks.errors import StageError
from tasks.progress import StageReport, add_reports
from tasks.records import DocumentWriter, read_lines
from tasks.scrape.config import ExtractConfig, FilterConfig
from tasks.scrape.extract import ExtractReason, extract_page
from tasks.scrape.fetch_stage import FETCH
from tasks.scrape.filter_reasons import FilterReason, example_of
from tasks.scrape.filter_urls import UrlFilter
from tasks.scrape.warc_reader import read_pages
from tasks.stages import Stage
from tasks.store import StageBuild

__all__ = ["EXTRACT", "FETCH", "FILTER"]


def filter_url_list(build: StageBuild, config: FilterConfig, urls: UrlList) -> UrlList:
    """Judge every line of the list; urls.txt holds the kept ones in order. Raises StageError when none is kept."""
    judge = UrlFilter(config)
    report = StageReport(unit="urls")
    build.progress.start("filtering URLs", urls.num_urls, "urls")
    temporary = build.directory / "urls.txt.tmp"
    with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as output:
        for path in sorted(build.path_of(urls).iterdir()):
            if path.name.startswith(".") or not path.name.startswith("urls"):
                continue
            is_json = ".jsonl" in path.suffixes or ".json" in path.suffixes
            for line in read_lines(path):
                if not line.strip():
                    continue
                report.num_in += 1
                text = _url_of_row(line) if is_json else line.decode("utf-8", "surrogateescape")
                url, reason = ("", FilterReason.BAD_ROW) if text is None else judge.judge(text)
                if reason is not None:
                    report.drop(reason, example_of(url or repr(line[:100])))
                    continue
                output.write(url + "\n")
                report.num_out += 1
    build.progress.advance(report.num_in)
    if report.num_out == 0:
        raise StageError(f"the filter kept none of {report.num_in} URLs; dropped: {report.dropped}")
    temporary.replace(build.directory / "urls.txt")
    return build.publish(UrlList, report, num_urls=report.num_out)


def _url_of_row(line: bytes) -> str | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    url = value.get("url") if isinstance(value, dict) else None
    return url if isinstance(url, str) else None


def extract_shard(shard: tuple[str, ExtractConfig], directory: Path) -> tuple[list[str], StageReport]:
    """The documents of one WARC file. One page of each final URL counts."""
    source, config = Path(shard[0]), shard[1]
    report = StageReport(unit="pages")
    name = source.name.split(".", 1)[0].replace("pages", "documents") + ".jsonl.zst"
    seen: set[str] = set()
    with DocumentWriter(directory / name) as writer:
        for page in read_pages(source):
            report.num_in += 1
            document, reason = extract_page(page, config)
            if document is not None and document.id in seen:
                document, reason = None, ExtractReason.DUPLICATE_URL
            if document is None:
                report.drop(reason, page.final_url)
                continue
            seen.add(document.id)
            writer.write(document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def extract_documents(build: StageBuild, config: ExtractConfig, pages: PageShards) -> DocumentShards:
    """The main text of every page. Raises StageError when no page gives any."""
    paths = sorted(path for path in build.path_of(pages).iterdir() if ".warc" in path.suffixes)
    results = map_shards(
        extract_shard,
        [(path.name, (str(path), config)) for path in paths],
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="extracting text",
    )
    report = add_reports((result.report for result in results), "pages")
    num_text_bytes = report.counts.pop("text_bytes", 0)
    if report.num_out == 0:
        raise StageError(f"none of {report.num_in} pages gave a document; dropped: {report.dropped}")
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)


FILTER = Stage("filter", 1, FilterConfig, (UrlList,), UrlList, filter_url_list, "Choose the URLs worth fetching")
EXTRACT = Stage("extract", 1, ExtractConfig, (PageShards,), DocumentShards, extract_documents, "Find the text of pages")
