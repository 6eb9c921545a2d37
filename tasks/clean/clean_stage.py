"""The stage clean: every document repaired, and kept or dropped for one reason."""

from __future__ import annotations

from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig
from tasks.clean.judge import judge
from tasks.clean.shards import document_shards, example_of, output_name, publish_documents
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.records import DocumentWriter, read_rows
from tasks.store import StageBuild


def clean_shard(shard: tuple[str, CleanConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Clean one file of documents into one shard of the same name. Raises CorruptInputError for a damaged file."""
    source, config = Path(shard[0]), shard[1]
    report = StageReport(unit="documents")
    name = output_name(source)
    with DocumentWriter(directory / name) as writer:
        for row in read_rows(source):
            report.num_in += 1
            if row.document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                continue
            judgement = judge(row.document, config)
            if judgement.repaired or row.repaired:
                report.count("repaired")
            if judgement.language:
                report.count(f"language:{judgement.language}")
            if judgement.is_mixed:
                report.count("mixed_languages")
            if judgement.reason is not None:
                report.drop(judgement.reason.value, example_of(row.document))
                continue
            writer.write(row.document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def clean_documents(build: StageBuild, config: CleanConfig, documents: DocumentShards) -> DocumentShards:
    """Repair every document and keep those that pass the rules. Raises StageError when none is kept."""
    results = map_shards(
        clean_shard,
        [(path.name, (str(path), config)) for path in document_shards(build.path_of(documents))],
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="cleaning documents",
    )
    return publish_documents(build, [result.report for result in results])
