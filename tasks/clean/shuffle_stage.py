"""The stage shuffle: in memory where all lines fit the setting, else by way of sorted runs on disk.

Both ways give the same bytes: a line's place depends on its key alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.clean.config import ShuffleConfig
from tasks.clean.held_lines import HeldLines, hold_lines, own_blocks
from tasks.clean.lines import LineWriter
from tasks.clean.shards import document_shards, publish_documents
from tasks.clean.shuffle import RunWriter, cut_keys, lines_between, open_runs
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.store import StageBuild

# Beside the lines that are put in order: what is read, compressed and written at the moment.
SHARE_FOR_LINES = 0.6
SUFFIXES = {"zstd": ".jsonl.zst", "none": ".jsonl"}


def deal_shard(shard: tuple[str, int, int, int], directory: Path) -> tuple[list[str], StageReport]:
    """Write the rows of one file in sorted runs; `shard` has the file, its number, the seed, the bytes of a run."""
    source, number, seed, run_bytes = Path(shard[0]), shard[1], shard[2], shard[3]
    report = StageReport(unit="documents")
    runs = RunWriter(directory, source.name, seed, number, run_bytes)
    for block, ends in own_blocks(source, report):
        runs.add(block, ends)
    runs.close()
    return runs.names, report


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
    workers, memory = config.resources.workers, config.resources.memory_bytes
    most_bytes = max(1 << 16, int(memory * SHARE_FOR_LINES))
    held = hold_lines(paths, config.seed, most_bytes, workers) if documents.num_text_bytes < most_bytes else None
    if held is not None:
        reports = [held.report]
        _write_held(build, config, held)
    else:
        reports = _deal_and_gather(build, config, paths, most_bytes // workers)
    # Only rows without a text can be dropped, so the bytes of all texts stay what they were.
    reports.append(StageReport(unit="documents", counts={"text_bytes": documents.num_text_bytes}))
    return publish_documents(build, reports)


def _shard_name(number: int, config: ShuffleConfig) -> str:
    return f"documents-{number:05d}{SUFFIXES[config.compression]}"


def _write_held(build: StageBuild, config: ShuffleConfig, held: HeldLines) -> None:
    """Write all shards from memory, as many at a time as there are workers: threads, since the lines are here."""
    workers = config.resources.workers
    firsts = list(range(0, len(held.order), config.documents_per_shard))

    def write_some(numbers: list[int], directory: Path) -> tuple[list[str], StageReport]:
        def write_one(number: int) -> str:
            name = _shard_name(number, config)
            with LineWriter(directory / name) as writer:
                writer.write_views(held.views(firsts[number], firsts[number] + config.documents_per_shard))
            return name

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(write_one, numbers)), StageReport(unit="documents")

    numbers = list(range(len(firsts)))
    map_shards(
        write_some,
        [(f"{first}-of-{len(firsts)}", numbers[first : first + workers]) for first in numbers[::workers]],
        build.directory,
        workers=1,
        progress=build.progress,
        description="shuffling documents",
    )


def _deal_and_gather(build: StageBuild, config: ShuffleConfig, paths: list[Path], most_bytes: int) -> list[StageReport]:
    """Shuffle by way of sorted runs on disk; `most_bytes` for the lines of one worker."""
    scratch = build.scratch / "runs"
    scratch.mkdir(exist_ok=True)
    workers = config.resources.workers
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
        for name in [_shard_name(number, config)]
    ]
    map_shards(
        gather_shard,
        shards,
        build.directory,
        workers=workers,
        progress=build.progress,
        description="gathering documents",
    )
    return [result.report for result in dealt]
