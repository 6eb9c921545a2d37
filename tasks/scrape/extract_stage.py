"""The stage `extract`: WARC files become document shards, one shard a file, one document for each final URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.artifacts import DocumentShards, PageShards
from tasks.engine import ShardResult, map_shards
from tasks.errors import CorruptInputError, StageError, UserError
from tasks.progress import StageReport, add_reports
from tasks.records import DocumentWriter, read_rows
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import ExtractReason, document_id
from tasks.scrape.page_process import PageProcess
from tasks.scrape.public_suffix import site_of_url
from tasks.scrape.warc_reader import read_pages
from tasks.stages import Stage
from tasks.store import StageBuild

WARC_SUFFIXES = (".warc", ".warc.gz", ".warc.zst")
TEXT_BYTES = "text_bytes"
EXTRACTED = "ok"
"""Label of the pages of a site that gave a document."""

_processes: dict[str, PageProcess] = {}
"""The page process of this worker, by settings: it is used for shard after shard and ends with the worker."""


def _page_process(config: ExtractConfig) -> PageProcess:
    return _processes.setdefault(config.model_dump_json(), PageProcess(config))


def _close_processes() -> None:
    while _processes:
        _processes.popitem()[1].close()


def extract_shard(shard: tuple[str, int, ExtractConfig], directory: Path) -> tuple[list[str], StageReport]:
    """The documents of one WARC file. The first page of each final URL counts."""
    source, number, config = Path(shard[0]), shard[1], shard[2]
    process = _page_process(config)
    report = StageReport(unit="pages")
    name = _shard_name(number)
    seen: set[str] = set()
    with DocumentWriter(directory / name) as writer:
        for page in read_pages(source):
            report.num_in += 1
            if page.final_url and document_id(page.final_url) in seen:
                report.drop(ExtractReason.DUPLICATE_URL, page.final_url)
                report.place(site_of_url(page.final_url), ExtractReason.DUPLICATE_URL.value)
                continue
            document, reason = process.extract(page)
            report.place(site_of_url(page.final_url or page.url), EXTRACTED if document else str(reason))
            if document is None:
                report.drop(str(reason), page.final_url or page.url)
                continue
            seen.add(document.id)
            writer.write(document)
            report.num_out += 1
        report.count(TEXT_BYTES, writer.num_text_bytes)
    return [name], report


def _shard_name(number: int) -> str:
    return f"documents-{number:05d}.jsonl.zst"


def extract_documents(build: StageBuild, config: ExtractConfig, pages: PageShards) -> DocumentShards:
    """The main text of every page. Shard k holds the documents of the k-th WARC file by name.

    Raises CorruptInputError for a damaged WARC file, UserError when there is none, and StageError when no page gives
    a document or the extractor cannot be started.
    """
    paths = sorted(path for path in build.path_of(pages).iterdir() if path.name.endswith(WARC_SUFFIXES))
    if not paths:
        raise UserError("pages", pages.path, "there is no WARC file", "Give .warc, .warc.gz or .warc.zst files.")
    shards = [(_shard_name(number), (str(path), number, config)) for number, path in enumerate(paths)]
    try:
        results = map_shards(
            extract_shard,
            shards,
            build.directory,
            workers=config.resources.workers,
            progress=build.progress,
            description="extract text",
        )
    finally:
        _close_processes()
    reports = drop_repeated(build.directory, results)
    report = add_reports(reports, "pages")
    num_text_bytes = report.counts.pop(TEXT_BYTES, 0)
    if report.num_out == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise StageError(f"none of {report.num_in} pages gave a document: {reasons}")
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)


def drop_repeated(directory: Path, results: Sequence[ShardResult]) -> list[StageReport]:
    """Keep the first document of each id over all shards; only shards that hold a later one are written again.

    A shard that was written again no longer has the size its marker tells, so that a rerun after a crash makes it
    anew from its pages.
    """
    if len(results) == 1:
        return [results[0].report]
    seen: set[int] = set()
    reports: list[StageReport] = []
    for result in results:
        name = next(iter(result.files))
        repeated: set[str] = set()
        for row in read_rows(directory / name):
            if row.document is None:
                raise CorruptInputError(f"{directory / name}: row {row.line_number} is no document ({row.reason})")
            number = int(row.document.id, 16)
            if number in seen:
                repeated.add(row.document.id)
            seen.add(number)
        reports.append(_without(directory / name, repeated, result.report) if repeated else result.report)
    return reports


def _without(path: Path, repeated: set[str], report: StageReport) -> StageReport:
    report = report.model_copy(deep=True)
    rows = [row.document for row in read_rows(path) if row.document is not None]
    with DocumentWriter(path) as writer:
        for document in rows:
            if document.id in repeated:
                report.drop(ExtractReason.DUPLICATE_URL, document.url)
                report.num_out -= 1
            else:
                writer.write(document)
    report.counts[TEXT_BYTES] = writer.num_text_bytes
    return report


EXTRACT = Stage(
    name="extract",
    version=3,
    config=ExtractConfig,
    inputs=(PageShards,),
    output=DocumentShards,
    run=extract_documents,
    description="Find the main text of each page",
)
