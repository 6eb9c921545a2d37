"""The stage shuffle: rows dealt into sorted runs, then every shard of the result gathered from all runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.clean.config import ShuffleConfig
from tasks.clean.lines import LineWriter, all_as_they_are, line_blocks, line_ends, source_name
from tasks.clean.shards import document_shards, publish_documents
from tasks.clean.shuffle import RunWriter, cut_keys, lines_between, open_runs
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.records import parse_row
from tasks.store import StageBuild

# Beside the lines that are put in order: what is read, compressed and written at the moment.
SHARE_FOR_LINES = 0.6
SUFFIXES = {"zstd": ".jsonl.zst", "none": ".jsonl"}


def deal_shard(shard: tuple[str, int, int, int], directory: Path) -> tuple[list[str], StageReport]:
    """Write the rows of one file in sorted runs; `shard` has the file, its number, the seed, the bytes of a run."""
    source, number, seed, run_bytes = Path(shard[0]), shard[1], shard[2], shard[3]
    report = StageReport(unit="documents")
    runs = RunWriter(directory, source.name, seed, number, run_bytes)
    for block in line_blocks(source):
        ends = line_ends(block)
        # What our own writer wrote goes through as it is; anything else is read as a document first.
        if all_as_they_are(block, ends):
            report.num_in += len(ends)
        else:
            block = _rewritten(block, report, source)
            ends = line_ends(block)
        runs.add(block, ends)
    runs.close()
    report.num_out = runs.num_rows
    return runs.names, report


def _rewritten(block: bytes, report: StageReport, source: Path) -> bytes:
    """The block's documents as our writer writes them; what is none is dropped. Counts all lines."""
    lines = []
    for line_number, line in enumerate(block[:-1].split(b"\n"), start=report.num_in + 1):
        report.num_in += 1
        row = parse_row(line, line_number, source_name(source))
        if row.document is None:
            report.drop(row.reason, f"{source.name}:{line_number}")
        else:
            lines.append(row.document.to_json())
    return b"\n".join((*lines, b"")) if lines else b""


def gather_shard(shard: tuple[str, str, list[str], int, int, int], directory: Path) -> tuple[list[str], StageReport]:
    """Write one shard of the result: its name, scratch folder, dealt shards, range of keys, bytes in memory."""
    name, scratch, names, low, high, most_bytes = shard
    report = StageReport(unit="documents")
    writer = LineWriter(directory / name)
    with writer:
        for lines in lines_between(open_runs(Path(scratch), names), low, high, most_bytes):
            writer.write_views(lines)
    report.num_in = report.num_out = writer.num_documents
    return [name], report


def shuffle_documents(build: StageBuild, config: ShuffleConfig, documents: DocumentShards) -> DocumentShards:
    """Put all documents into one random order that the seed decides. Every document stays."""
    paths = document_shards(build.path_of(documents))
    scratch = build.scratch / "runs"
    scratch.mkdir(exist_ok=True)
    workers = config.resources.workers
    most_bytes = max(1 << 16, int(config.resources.memory_bytes * SHARE_FOR_LINES) // workers)
    dealt = map_shards(
        deal_shard,
        [(path.name, (str(path), number, config.seed, most_bytes)) for number, path in enumerate(paths)],
        scratch,
        workers=workers,
        progress=build.progress,
        description="dealing documents",
    )
    names = [path.name for path in paths]
    cuts = cut_keys(scratch, names, config.documents_per_shard)
    shards = [
        (name, (name, str(scratch), names, low, high, most_bytes))
        for number, (low, high) in enumerate(pairwise(cuts))
        for name in [f"documents-{number:05d}{SUFFIXES[config.compression]}"]
    ]
    map_shards(
        gather_shard,
        shards,
        build.directory,
        workers=workers,
        progress=build.progress,
        description="gathering documents",
    )
    reports = [result.report for result in dealt]
    # Only rows without a text can be dropped, so the bytes of all texts stay what they were.
    reports.append(StageReport(unit="documents", counts={"text_bytes": documents.num_text_bytes}))
    return publish_documents(build, reports)
