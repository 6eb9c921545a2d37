"""Files of documents: which an artifact has, what they become, and how the result is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.errors import StageError
from tasks.progress import StageReport, add_reports
from tasks.records import Document
from tasks.store import StageBuild

EXAMPLE_CHARACTERS = 80
# What stages write and adoption makes; an artifact also has its manifest.json.
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def document_shards(directory: Path) -> list[Path]:
    """The document files of an artifact, in the order in which they are one corpus."""
    return sorted(
        path for path in directory.iterdir() if path.name.endswith(SHARD_SUFFIXES) and not path.name.startswith(".")
    )


def output_name(source: Path) -> str:
    """The name of the shard that is made from `source`."""
    return source.name.split(".", 1)[0] + ".jsonl.zst"


def example_of(document: Document) -> str:
    """A short line about a dropped document, for the report."""
    return f"{document.url or document.id}: {document.text[:EXAMPLE_CHARACTERS]}"


def publish_documents(build: StageBuild, reports: Sequence[StageReport]) -> DocumentShards:
    """Publish the shards with the sum of their reports, whose count `text_bytes` becomes a field of the artifact.

    Raises StageError when no document is left: nothing after this stage could work.
    """
    report = add_reports(reports, "documents")
    num_text_bytes = report.counts.pop("text_bytes", 0)
    if report.num_out == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise StageError(f"{build.stage_name} kept none of {report.num_in} documents: {reasons}")
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)
