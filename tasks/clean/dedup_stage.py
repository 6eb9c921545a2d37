"""The stage dedup: traits of every shard, candidates over all of them, true similarity, survivors written.

Every step that reads documents works shard by shard in processes and goes on where it stopped; n-grams are made anew
only for documents that share a band with another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.artifacts import DocumentShards
from tasks.clean.candidates import Numbers, TraitFiles, shared_bands
from tasks.clean.config import DedupConfig
from tasks.clean.dedup import REASONS, Decisions, decide_equals, decide_near
from tasks.clean.shards import document_shards, example_of, output_name, publish_documents
from tasks.clean.shingles import Hashes, distinct, shingle_hashes
from tasks.clean.traits import BATCH_CHARACTERS, describe_shard, documents_of, save
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.records import Document, DocumentWriter, read_rows
from tasks.store import StageBuild


def gram_shard(shard: tuple[str, Numbers, int], directory: Path) -> tuple[list[str], StageReport]:
    """Sets of n-grams of some documents of one file: `shard` has the file, their places in it, words in an n-gram."""
    source, places, words = Path(shard[0]), set(shard[1].tolist()), shard[2]
    sets: list[Hashes] = []
    batch: list[Document] = []

    def flush() -> None:
        hashes, offsets = shingle_hashes([document.text for document in batch], words)
        sets.extend(distinct(hashes[offsets[at] : offsets[at + 1]]) for at in range(len(batch)))
        batch.clear()

    size = 0
    for place, document in enumerate(documents_of(source)):
        if place in places:
            batch.append(document)
            size += len(document.text)
            if size >= BATCH_CHARACTERS:
                flush()
                size = 0
    flush()
    offsets = np.zeros(len(sets) + 1, np.uint64)
    np.cumsum([len(one) for one in sets], out=offsets[1:])
    names = [source.name + ".grams.npy", source.name + ".offsets.npy"]
    save(directory / names[0], np.concatenate([np.zeros(0, np.uint64), *sets]))
    save(directory / names[1], offsets)
    return names, StageReport(unit="documents")


def keep_shard(shard: tuple[str, Decisions], directory: Path) -> tuple[list[str], StageReport]:
    """Write the survivors of one file; `shard` has the file and the decisions about its documents."""
    source, decisions = Path(shard[0]), shard[1]
    report = StageReport(unit="documents")
    name = output_name(source)
    place = -1
    with DocumentWriter(directory / name) as writer:
        for row in read_rows(source):
            report.num_in += 1
            if row.document is None:
                report.drop(row.reason, f"{source.name}:{row.line_number}")
                continue
            place += 1
            if reason := REASONS[decisions.reason[place]]:
                report.drop(reason, f"like document {decisions.survivor[place]}: {example_of(row.document)}")
                continue
            writer.write(row.document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def dedup_documents(build: StageBuild, config: DedupConfig, documents: DocumentShards) -> DocumentShards:
    """Keep the first document of each group of copies, in input order."""
    paths = document_shards(build.path_of(documents))
    scratch = build.scratch / "traits"
    scratch.mkdir(exist_ok=True)
    map_shards(
        describe_shard,
        [(path.name, (str(path), config)) for path in paths],
        scratch,
        workers=config.resources.workers,
        progress=build.progress,
        description="hashing documents",
    )
    traits = TraitFiles([scratch / f"{path.name}.npy" for path in paths])
    decisions = decide_equals(traits, config)
    counts: dict[str, int] = {}
    if config.near:
        numbers, groups = shared_bands(traits, decisions.alive())
        grams_of = _candidates_grams(build, config, paths, traits.lengths, np.unique(numbers))
        counts = decide_near(decisions, numbers, groups, grams_of, config.threshold)
    shards, first = [], 0
    for path, length in zip(paths, traits.lengths, strict=True):
        part = slice(first, first + length)
        shards.append((path.name, (str(path), Decisions(decisions.reason[part], decisions.survivor[part]))))
        first += length
    results = map_shards(
        keep_shard,
        shards,
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="dropping copies",
    )
    extra = StageReport(unit="documents", counts={name: count for name, count in counts.items() if count})
    return publish_documents(build, [*(result.report for result in results), extra])


def _candidates_grams(
    build: StageBuild, config: DedupConfig, paths: list[Path], lengths: list[int], numbers: Numbers
) -> Callable[[int], Hashes]:
    """Make the sets of n-grams of the documents `numbers`, and return the function that looks one up."""
    scratch = build.scratch / "grams"
    scratch.mkdir(exist_ok=True)
    firsts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    bounds = np.searchsorted(numbers, firsts)
    shards = [
        (path.name, (str(path), numbers[bounds[at] : bounds[at + 1]] - firsts[at], config.shingle_words))
        for at, path in enumerate(paths)
        if bounds[at + 1] > bounds[at]
    ]
    map_shards(
        gram_shard,
        shards,
        scratch,
        workers=config.resources.workers,
        progress=build.progress,
        description="comparing documents",
    )
    grams = {name: np.load(scratch / f"{name}.grams.npy", mmap_mode="r") for name, _ in shards}
    offsets = {name: np.load(scratch / f"{name}.offsets.npy") for name, _ in shards}

    def grams_of(number: int) -> Hashes:
        shard = int(np.searchsorted(firsts, number, side="right")) - 1
        place = int(np.searchsorted(numbers, number)) - int(bounds[shard])
        name = paths[shard].name
        found: Hashes = grams[name][int(offsets[name][place]) : int(offsets[name][place + 1])]
        return found

    return grams_of
