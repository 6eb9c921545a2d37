"""The stages filter and extract; fetch is in fetch_stage."""

from __future__ import annotations

from pathlib import Path

from tasks.artifacts import DocumentShards, PageShards
from tasks.engine import map_shards
from tasks.errors import StageError
from tasks.progress import StageReport, add_reports
from tasks.records import DocumentWriter
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import ExtractReason, extract_page
from tasks.scrape.fetch_stage import FETCH
from tasks.scrape.filter_stage import FILTER
from tasks.scrape.warc_reader import read_pages
from tasks.stages import Stage
from tasks.store import StageBuild

__all__ = ["EXTRACT", "FETCH", "FILTER"]


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


EXTRACT = Stage("extract", 1, ExtractConfig, (PageShards,), DocumentShards, extract_documents, "Find the text of pages")
