"""The stage clean: every document repaired, and kept or dropped for one reason."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.clean.cleaning_report import PARTS_FOLDER, ReportPart, write_report
from tasks.clean.config import CleanConfig
from tasks.clean.judge import Judge
from tasks.clean.kept_numbers import NumbersWriter
from tasks.clean.shards import document_shards, example_of, output_name, publish_documents
from tasks.engine import map_shards
from tasks.progress import StageReport, add_reports
from tasks.records import DocumentWriter, read_rows
from tasks.store import StageBuild


def clean_shard(shard: tuple[str, CleanConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Clean one file of documents into one shard of the same name, with its numbers and its part of the report.

    Raises CorruptInputError for a damaged file.
    """
    source, config = Path(shard[0]), shard[1]
    report, judge = StageReport(unit="documents"), Judge(config)
    part = ReportPart(source.name, config.example_seed)
    name = output_name(source)
    files = [name]
    with ExitStack() as stack:
        writer = stack.enter_context(DocumentWriter(directory / name))
        numbers: NumbersWriter | None = None
        if judge.measures:
            numbers = stack.enter_context(NumbersWriter(directory, name, config.keep_dropped))
            files += numbers.files
        for row in read_rows(source):
            report.num_in += 1
            document = row.document
            if document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                part.add_bad_row(row.line_number, row.reason, row.raw)
                continue
            num_characters = len(document.text)
            found = judge.judge(document)
            if row.repaired:
                found.changes["repaired"] = 1
            for change, number in found.changes.items():
                report.count(change, number)
            if found.language:
                report.count(f"language:{found.language}")
            part.add(
                row.line_number, document, num_characters, found.language, found.reason, found.numbers, found.failed
            )
            if numbers is not None and found.numbers:
                numbers.write(row.line_number, document, not found.reason, found.numbers)
            if found.reason:
                report.drop(found.reason, example_of(document))
                continue
            writer.write(document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    part_name = f"{PARTS_FOLDER}/{name}.json"
    part.write(directory / part_name)
    return [*files, part_name], report


def clean_documents(build: StageBuild, config: CleanConfig, documents: DocumentShards) -> DocumentShards:
    """Repair every document and keep those that pass the rules. Raises StageError when none is kept.

    report.json says what the corpus was before and after. With rules of quality, measured/ has their numbers.
    """
    paths = document_shards(build.path_of(documents))
    results = map_shards(
        clean_shard,
        [(path.name, (str(path), config)) for path in paths],
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="cleaning documents",
    )
    reports = [result.report for result in results]
    total = add_reports(reports, "documents")
    totals = {"num_in": total.num_in, "num_out": total.num_out, "dropped": total.dropped, "counts": total.counts}
    parts = [build.directory / PARTS_FOLDER / f"{output_name(path)}.json" for path in paths]
    write_report(parts, build.directory, totals, config.quality.rules())
    return publish_documents(build, reports)
