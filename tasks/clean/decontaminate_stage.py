"""The stage decontaminate: every document searched for n-grams of benchmarks, then cut, dropped or copied as it is.

The first pass writes where matches are, and how many documents hold each n-gram; the second cuts what is not common.
Both work shard by shard in processes and go on where they stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.artifacts import DocumentShards
from tasks.clean.benchmark_ngrams import Finder, benchmark_ngrams
from tasks.clean.config import DecontaminateConfig
from tasks.clean.decontaminate import DecontaminateReason, pieces_of
from tasks.clean.digests import save
from tasks.clean.lines import AS_IT_IS, LineWriter, bad_reason, document_of, read_text
from tasks.clean.shards import document_shards, example_of, output_name, publish_documents
from tasks.clean.shingles import BATCH_CHARACTERS, Hashes, encode, words_of
from tasks.clean.spool import Spool
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.records import Document, line_lists, source_name
from tasks.store import StageBuild

STATE_ROW, END_ROW, BYTES_ROW = 0, 1, 2
"""Rows of the facts about lines: state, place after it in the plain text, bytes of the document's text."""
Spans = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True)
class SearchShard:
    """Work on one file: where it is, and the n-grams to find."""

    source: str
    ngrams: str
    sizes: tuple[tuple[int, int], ...]
    """Words in an n-gram, and how many of those n-grams there are in the file `ngrams`."""


def search_shard(shard: SearchShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write the lines as plain text, facts about them (uint64 [3, lines]), and int64 [4, matches]: line, first byte,
    byte after, n-gram."""
    source = Path(shard.source)
    all_ngrams: Hashes = np.load(shard.ngrams)
    bounds = np.cumsum([0, *(count for _, count in shard.sizes)]).tolist()
    finder = Finder([(size, all_ngrams[bounds[at] : bounds[at + 1]]) for at, (size, _) in enumerate(shard.sizes)])
    facts: list[tuple[int, int, int]] = []
    found = [np.zeros((4, 0), np.int64)]
    batch: list[bytes] = []
    held = 0

    def flush() -> None:
        matches = finder.find(words_of(batch))
        lines = matches.texts + (len(facts) - len(batch))
        found.append(np.stack([lines, matches.begins, matches.ends, matches.ngrams]))
        batch.clear()

    name, end = source_name(source), 0
    names = [f"{source.name}.{kind}" for kind in ("lines", "facts.npy", "matches.npy")]
    with (directory / names[0]).open("wb") as spool:
        for lines in line_lists(source):
            spool.write(b"\n".join((*lines, b"")))
            for line in lines:
                state, text, _ = read_text(line, len(facts) + 1, name)
                end += len(line) + 1
                batch.append(encode(text))
                facts.append((state, end, len(text.encode())))
                held += len(batch[-1])
                if held >= BATCH_CHARACTERS:
                    flush()
                    held = 0
    flush()
    save(directory / names[1], np.array(facts, np.uint64).reshape(-1, 3).T)
    save(directory / names[2], np.concatenate(found, axis=1))
    return names, StageReport(unit="documents")


@dataclass(frozen=True)
class CutShard:
    """Work on one file: what the search wrote, and which n-grams count."""

    source: str
    found: str
    """Folder of what `search_shard` wrote."""
    rare: str
    """File of a mask over all n-grams."""
    config: DecontaminateConfig


def cut_shard(shard: CutShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write what is left of one file; runs of untouched lines are copied as they are."""
    source, found = Path(shard.source), Path(shard.found)
    facts: Hashes = np.load(found / f"{source.name}.facts.npy")
    spans = _spans(np.load(found / f"{source.name}.matches.npy"), np.load(shard.rare))
    spool = Spool(found / f"{source.name}.lines", facts[END_ROW])
    touched = facts[STATE_ROW] != AS_IT_IS
    touched[list(spans)] = True
    report = StageReport(unit="documents")
    output, name = output_name(source), source_name(source)
    with LineWriter(directory / output) as writer:
        edges = np.flatnonzero(np.diff(touched.astype(np.int8))) + 1
        for first, last in pairwise([0, *edges.tolist(), len(touched)]):
            if first < last and not touched[first]:
                writer.write_block(spool.block(first, last), last - first)
                report.num_in += last - first
                report.count("text_bytes", int(facts[BYTES_ROW][first:last].sum()))
                continue
            for number in range(first, last):
                report.num_in += 1
                if bad := bad_reason(int(facts[STATE_ROW, number])):
                    report.drop(bad, f"{source.name}:{number + 1}")
                    continue
                document = document_of(spool.line(number), number + 1, name)
                left = list(_left_of(document, spans.get(number, []), shard.config, report))
                report.count("text_bytes", sum(len(one.text.encode()) for one in left))
                writer.write_lines([one.to_json() for one in left])
    report.num_out = writer.num_documents
    return [output], report


def _spans(matches: npt.NDArray[np.int64], rare: npt.NDArray[np.bool_]) -> Spans:
    """First and last byte (exclusive) of the matches that count, by line."""
    counting = matches[:, rare[matches[3]]].T.tolist()
    return {line: [(one[1], one[2]) for one in group] for line, group in groupby(counting, key=lambda one: int(one[0]))}


def _left_of(
    document: Document, spans: list[tuple[int, int]], config: DecontaminateConfig, report: StageReport
) -> Iterator[Document]:
    """The document, or its pieces, which are documents of their own with a number behind the id."""
    if not spans:
        yield document
        return
    encoded = encode(document.text)
    matches = [(_characters(encoded, first), _characters(encoded, last)) for first, last in spans]
    text = encoded.decode("utf-8", "surrogatepass")
    example = f"{text[matches[0][0] : matches[0][1]]!r} in {example_of(document)}"
    if config.mode == "drop":
        report.drop(DecontaminateReason.OVERLAP, example)
        return
    pieces = [stripped for piece in pieces_of(text, matches, config) if (stripped := piece.strip())]
    if not pieces or len(pieces) > config.most_pieces:
        too_many = len(pieces) > config.most_pieces
        report.drop(DecontaminateReason.TOO_MANY_PIECES if too_many else DecontaminateReason.NOTHING_LEFT, example)
        return
    report.count("documents_cut")
    # Each further piece is a document more that came in with this one.
    report.num_in += len(pieces) - 1
    report.count("pieces_added", len(pieces) - 1)
    for number, piece in enumerate(pieces):
        yield replace(document, id=f"{document.id}/{number}" if len(pieces) > 1 else document.id, text=piece)


def _characters(encoded: bytes, place: int) -> int:
    return len(encoded[:place].decode("utf-8", "surrogatepass"))


def decontaminate_documents(
    build: StageBuild, config: DecontaminateConfig, documents: DocumentShards
) -> DocumentShards:
    """Cut or drop what the benchmark files hold. Raises UserError when there are none, or none that can be read."""
    ngrams = benchmark_ngrams(config)
    paths = document_shards(build.path_of(documents))
    found = build.scratch / "found"
    found.mkdir(exist_ok=True)
    save(found / "ngrams.npy", np.concatenate([hashes for _, hashes in ngrams]))
    sizes = tuple((size, len(hashes)) for size, hashes in ngrams)
    map_shards(
        search_shard,
        [(path.name, SearchShard(str(path), str(found / "ngrams.npy"), sizes)) for path in paths],
        found,
        workers=config.resources.workers,
        progress=build.progress,
        description="looking for benchmark texts",
    )
    num_documents = np.zeros(sum(count for _, count in sizes), np.int64)
    for path in paths:
        matches = np.load(found / f"{path.name}.matches.npy")
        held = np.unique(matches[[0, 3]], axis=1)
        num_documents += np.bincount(held[1], minlength=len(num_documents))
    common = (num_documents >= config.common_documents) & (config.common_documents > 0)
    save(found / "rare.npy", ~common)
    results = map_shards(
        cut_shard,
        [(path.name, CutShard(str(path), str(found), str(found / "rare.npy"), config)) for path in paths],
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="cutting benchmark texts",
    )
    counts = {
        "benchmark_ngrams": len(num_documents),
        "benchmark_ngrams_found": int(np.count_nonzero(num_documents)),
        "benchmark_ngrams_common": int(np.count_nonzero(common)),
    }
    return publish_documents(
        build, [*(result.report for result in results), StageReport(unit="documents", counts=counts)]
    )
