"""The stages clean, dedup and shuffle."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig, DedupConfig, ShuffleConfig
from tasks.clean.dedup import Trait, trait_of, verdicts
from tasks.clean.judge import judge
from tasks.clean.shuffle import bucket_of, order_key
from tasks.engine import ShardResult, map_shards
from tasks.errors import StageError
from tasks.progress import StageReport, add_reports
from tasks.records import Document, DocumentWriter, parse_row, read_rows
from tasks.stages import Stage
from tasks.store import StageBuild

_LENGTH = struct.Struct("<I")
KEY_BYTES = 16


def document_shards(directory: Path) -> list[Path]:
    """The document files of an artifact, in order."""
    return sorted(path for path in directory.iterdir() if ".jsonl" in path.suffixes and not path.name.startswith("."))


def _publish(build: StageBuild, results: list[ShardResult]) -> DocumentShards:
    report = add_reports((result.report for result in results), "documents")
    num_text_bytes = report.counts.pop("text_bytes", 0)
    if report.num_out == 0:
        raise StageError(f"{build.stage_name} kept none of {report.num_in} documents; dropped: {report.dropped}")
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)


# --- clean ------------------------------------------------------------------------------------------------------


def clean_shard(shard: tuple[str, CleanConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Clean one file of documents into one shard of the same name."""
    source, config = Path(shard[0]), shard[1]
    report = StageReport(unit="documents")
    name = source.name.split(".", 1)[0] + ".jsonl.zst"
    with DocumentWriter(directory / name) as writer:
        for row in read_rows(source):
            report.num_in += 1
            if row.document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                continue
            verdict, changed = judge(row.document, config)
            if changed:
                report.count("repaired")
            if not verdict.keep:
                report.drop(verdict.reason, f"{row.document.url or row.document.id}: {row.document.text[:80]}")
                continue
            if language := row.document.extra.get("language"):
                report.count(f"language:{language}")
            writer.write(row.document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def clean_documents(build: StageBuild, config: CleanConfig, documents: DocumentShards) -> DocumentShards:
    """Repair every document and keep those that pass the rules. Raises StageError when none is kept."""
    shards = [(path.name, (str(path), config)) for path in document_shards(build.path_of(documents))]
    results = map_shards(
        clean_shard,
        shards,
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="cleaning documents",
    )
    return _publish(build, results)


# --- dedup ------------------------------------------------------------------------------------------------------


def describe_shard(shard: tuple[str, DedupConfig], directory: Path) -> tuple[list[str], StageReport]:
    """What is compared of each document of one file, in order."""
    source, config = Path(shard[0]), shard[1]
    traits = [trait_of(row.document.text, config) for row in read_rows(source) if row.document is not None]
    name = source.name + ".traits"
    temporary = directory / (name + ".tmp")
    with temporary.open("wb") as stream:
        np.savez(
            stream,
            exact=np.frombuffer(b"".join(trait.exact for trait in traits), np.uint8),
            lengths=np.array([len(trait.shingles) for trait in traits], np.int64),
            shingles=np.concatenate([np.zeros(0, np.uint64), *(trait.shingles for trait in traits)]),
            signatures=np.concatenate([np.zeros(0, np.uint32), *(trait.signature for trait in traits)]),
        )
    temporary.replace(directory / name)
    return [name], StageReport(unit="documents")


def _read_traits(path: Path, num_hashes: int) -> Iterator[Trait]:
    with np.load(path) as data:
        exact, lengths = data["exact"].tobytes(), data["lengths"]
        grams, values = data["shingles"], data["signatures"]
    place = row = 0
    for index, length in enumerate(lengths.tolist()):
        digest = exact[index * 16 : index * 16 + 16]
        width = num_hashes if length else 0
        yield Trait(digest, grams[place : place + length], values[row : row + width])
        place, row = place + length, row + width


def keep_shard(shard: tuple[str, list[str]], directory: Path) -> tuple[list[str], StageReport]:
    """Write the survivors of one file; `shard[1]` has the reason for each of its documents, "" for a survivor."""
    source, reasons = Path(shard[0]), shard[1]
    report = StageReport(unit="documents")
    name = source.name.split(".", 1)[0] + ".jsonl.zst"
    index = 0
    with DocumentWriter(directory / name) as writer:
        for row in read_rows(source):
            report.num_in += 1
            if row.document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                continue
            reason = reasons[index]
            index += 1
            if reason:
                report.drop(reason, f"{row.document.url or row.document.id}: {row.document.text[:80]}")
                continue
            writer.write(row.document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def dedup_documents(build: StageBuild, config: DedupConfig, documents: DocumentShards) -> DocumentShards:
    """Keep the first of each group of copies. Memory: the n-gram hashes of survivors, 8 bytes each."""
    paths = document_shards(build.path_of(documents))
    map_shards(
        describe_shard,
        [(path.name, (str(path), config)) for path in paths],
        build.scratch,
        workers=config.resources.workers,
        progress=build.progress,
        description="hashing documents",
    )
    lengths: list[int] = []

    def everything() -> Iterator[Trait]:
        for path in paths:
            number = 0
            for trait in _read_traits(build.scratch / (path.name + ".traits"), config.num_hashes):
                number += 1
                yield trait
            lengths.append(number)

    reasons = [str(reason) for reason, _ in verdicts(everything(), config)]
    shards, place = [], 0
    for path, length in zip(paths, lengths, strict=True):
        shards.append((path.name, (str(path), reasons[place : place + length])))
        place += length
    results = map_shards(
        keep_shard,
        shards,
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="dropping copies",
    )
    return _publish(build, results)


# --- shuffle ----------------------------------------------------------------------------------------------------


def deal_shard(shard: tuple[str, int, int, int], directory: Path) -> tuple[list[str], StageReport]:
    """Deal one file's rows into one file a bucket: key, length, JSON of each."""
    source, first_number, num_buckets, seed = Path(shard[0]), shard[1], shard[2], shard[3]
    stem = source.name.split(".", 1)[0]
    report = StageReport(unit="documents")
    names = [f"{stem}.bucket-{bucket:05d}" for bucket in range(num_buckets)]
    streams = [(directory / name).open("wb") for name in names]
    try:
        number = first_number
        for row in read_rows(source):
            report.num_in += 1
            if row.document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                continue
            key, line = order_key(seed, number), row.document.to_json()
            streams[bucket_of(key, num_buckets)].write(key + _LENGTH.pack(len(line)) + line)
            number += 1
            report.num_out += 1
    finally:
        for stream in streams:
            stream.close()
    return names, report


def sort_bucket(paths: list[Path]) -> list[bytes]:
    """The JSON lines of a bucket in the order of their keys."""
    rows: list[tuple[bytes, bytes]] = []
    for path in paths:
        content, place = path.read_bytes(), 0
        while place < len(content):
            key = content[place : place + KEY_BYTES]
            (length,) = _LENGTH.unpack_from(content, place + KEY_BYTES)
            place += KEY_BYTES + _LENGTH.size
            rows.append((key, content[place : place + length]))
            place += length
    rows.sort(key=lambda row: row[0])
    return [line for _, line in rows]


def shuffle_documents(build: StageBuild, config: ShuffleConfig, documents: DocumentShards) -> DocumentShards:
    """Put all documents into one random order that the seed decides. Every document stays."""
    paths = document_shards(build.path_of(documents))
    # Rows are read twice as JSON text; a bucket of half the memory leaves room for both its forms.
    num_buckets = max(1, -(-2 * documents.num_text_bytes // config.resources.memory_bytes))
    shards, number = [], 0
    for path in paths:
        shards.append((path.name, (str(path), number, num_buckets, config.seed)))
        number += sum(1 for row in read_rows(path) if row.document is not None)
    scratch = build.scratch / f"buckets-{num_buckets}"
    scratch.mkdir(exist_ok=True)
    results = map_shards(
        deal_shard,
        shards,
        scratch,
        workers=config.resources.workers,
        progress=build.progress,
        description="dealing documents",
    )
    report = add_reports((result.report for result in results), "documents")
    num_text_bytes = _write_buckets(build, config, [path.name.split(".", 1)[0] for path in paths], scratch, num_buckets)
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)


def _write_buckets(build: StageBuild, config: ShuffleConfig, stems: list[str], scratch: Path, num_buckets: int) -> int:
    def ordered() -> Iterator[Document]:
        for bucket in range(num_buckets):
            for line in sort_bucket([scratch / f"{stem}.bucket-{bucket:05d}" for stem in stems]):
                row = parse_row(line, 1, "")
                assert row.document is not None, "this line was written from a document"
                yield row.document

    num_text_bytes, shard = 0, 0
    source = ordered()
    document = next(source, None)
    while document is not None:
        with DocumentWriter(build.directory / f"documents-{shard:05d}.jsonl.zst") as writer:
            while document is not None and writer.num_documents < config.documents_per_shard:
                writer.write(document)
                document = next(source, None)
        num_text_bytes += writer.num_text_bytes
        shard += 1
    return num_text_bytes


CLEAN = Stage(
    "clean", 1, CleanConfig, (DocumentShards,), DocumentShards, clean_documents, "Repair text, keep what passes"
)
DEDUP = Stage("dedup", 1, DedupConfig, (DocumentShards,), DocumentShards, dedup_documents, "Drop exact and near copies")
SHUFFLE = Stage(
    "shuffle", 1, ShuffleConfig, (DocumentShards,), DocumentShards, shuffle_documents, "Shuffle all documents"
)
