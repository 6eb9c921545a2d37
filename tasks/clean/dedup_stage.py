"""The stage dedup: digests of every shard, candidates over all of them, true similarity, survivors copied.

Every step that reads documents works shard by shard in processes and goes on where it stopped, and so does every part
of the search for candidates. N-grams are made anew only for documents that share a band with another, and lines of
survivors are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from tasks.artifacts import DocumentShards
from tasks.clean.candidates import DigestFiles, Mask, Numbers, band_part, equals_part, parts_for
from tasks.clean.compare import CompareShard, compare_shard, open_grams, open_texts
from tasks.clean.config import DedupConfig
from tasks.clean.dedup import Decisions, DedupReason, NearLinks, decide_near, decide_same_words
from tasks.clean.digests import BANDS_ROW, NUM_GRAMS_ROW, STATE_ROW, URL_ROW, WORDS_ROW, describe_shard, save
from tasks.clean.keep import KeepShard, keep_shard
from tasks.clean.lines import REWRITTEN
from tasks.clean.repeats import NO_CUTS, Cuts, SegmentShard, cuts_of, segment_shard
from tasks.clean.shards import document_shards, publish_documents
from tasks.engine import map_shards
from tasks.progress import StageReport
from tasks.store import StageBuild

# Below so many keys another process takes longer to start than the search takes.
FEW_KEYS = 5_000_000
PartWork = Callable[[tuple[list[str], str, int, int, int, str], Path], tuple[list[str], StageReport]]


class _Search:
    """One run of the stage: where its scratch files are, and how its steps are mapped over shards and parts."""

    def __init__(self, build: StageBuild, config: DedupConfig, paths: list[Path]) -> None:
        self.build, self.config, self.paths = build, config, paths
        self.digest_paths = [self.folder("digests") / f"{path.name}.npy" for path in paths]

    def folder(self, name: str) -> Path:
        path = self.build.scratch / name
        path.mkdir(exist_ok=True)
        return path

    def describe(self) -> DigestFiles:
        map_shards(
            describe_shard,
            [(path.name, (str(path), self.config)) for path in self.paths],
            self.folder("digests"),
            workers=self.config.resources.workers,
            progress=self.build.progress,
            description="hashing documents",
        )
        return DigestFiles(self.digest_paths)

    def parts(
        self, work: PartWork, name: str, chosen: Mask, rows: range, paths: list[Path] | None = None
    ) -> list[Path]:
        """Look for equal keys of the chosen lines in some rows; returns where each part's files are, without suffix."""
        folder = self.folder(name)
        mask = folder / "chosen.npy"
        save(mask, chosen)
        num_keys = int(np.count_nonzero(chosen))
        workers = self.config.resources.workers if num_keys * len(rows) > FEW_KEYS else 1
        num_parts = parts_for(num_keys, self.config.resources.memory_bytes // workers)
        names = [(f"{row}-{part}-of-{num_parts}", row, part) for row in rows for part in range(num_parts)]
        files = [str(path) for path in paths or self.digest_paths]
        map_shards(
            work,
            [(one, (files, str(mask), row, part, num_parts, one)) for one, row, part in names],
            folder,
            workers=workers,
            progress=self.build.progress,
            description=f"looking for equal {name}",
        )
        return [folder / one for one, _, _ in names]

    def equals(self, name: str, chosen: Mask, row: int, paths: list[Path] | None = None) -> tuple[Numbers, Numbers]:
        """Lines that equal an earlier one in the 128 bits of a row and the next, in order, and the first of each."""
        parts = [np.load(f"{path}.npy") for path in self.parts(equals_part, name, chosen, range(row, row + 1), paths)]
        found = np.concatenate(parts, axis=1)
        copies, firsts = found[:, np.argsort(found[0])]
        return copies, firsts


def dedup_documents(build: StageBuild, config: DedupConfig, documents: DocumentShards) -> DocumentShards:
    """Keep the first document of each group of copies, in input order."""
    paths = document_shards(build.path_of(documents))
    search = _Search(build, config, paths)
    digests = search.describe()
    decisions = Decisions.none(digests.num_lines)
    real = digests.mask(STATE_ROW, lambda rows: rows[0] <= REWRITTEN)
    if config.urls:
        with_url = real & digests.mask(URL_ROW, lambda rows: (rows[0] | rows[1]) != 0, 2)
        decisions.drop(*search.equals("URLs", with_url, URL_ROW), DedupReason.URL)
    counts: dict[str, int] = {}
    if config.exact or config.near:
        counts = _drop_alike(search, digests, decisions, real & decisions.alive())
    kept = real & decisions.alive()
    cuts = _find_repeats(search, digests, kept) if config.repeats != "keep" else [NO_CUTS] * len(paths)
    shards = []
    for place, (first, last) in enumerate(pairwise(digests.firsts.tolist())):
        own = Decisions(decisions.reason[first:last], decisions.survivor[first:last])
        work = KeepShard(str(paths[place]), str(search.digest_paths[place]), own, cuts[place], config)
        shards.append((paths[place].name, work))
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


def _drop_alike(search: _Search, digests: DigestFiles, decisions: Decisions, chosen: Mask) -> dict[str, int]:
    """Drop exact and near copies among the chosen lines; returns counts for the report."""
    config = search.config
    copies, firsts = search.equals("words", chosen, WORDS_ROW)
    with_words = digests.mask(NUM_GRAMS_ROW, lambda rows: rows[0] > 0)
    links = NearLinks([], [])
    if config.near:
        leaders = chosen & with_words
        leaders[copies] = False
        parts = search.parts(band_part, "bands", leaders, range(BANDS_ROW, digests.num_rows))
        links = NearLinks(
            [np.load(f"{path}.pairs.npy", mmap_mode="r") for path in parts],
            [np.load(f"{path}.crowds.npy", mmap_mode="r") for path in parts],
        )
    compared = links.lines(digests.num_lines)
    same = np.union1d(copies, firsts) if config.exact else np.zeros(0, np.int64)
    names = _compare(search, digests, compared, same)
    decide_same_words(
        decisions,
        copies,
        firsts,
        open_texts(search.folder("sets"), names, same) if config.exact else None,
        with_words[copies] & config.near,
    )
    if not config.near:
        return {}
    grams = open_grams(search.folder("sets"), names, compared)
    counts = decide_near(decisions, links, grams, config.threshold, config.resources.memory_bytes)
    decisions.follow()
    return counts


def _find_repeats(search: _Search, digests: DigestFiles, kept: Mask) -> list[Cuts]:
    """For every file the lines or paragraphs that an earlier kept document, or an earlier place of the same, has."""
    folder, shards = search.folder("segments"), []
    for place, (first, last) in enumerate(pairwise(digests.firsts.tolist())):
        own = np.flatnonzero(kept[first:last])
        work = SegmentShard(str(search.paths[place]), str(search.digest_paths[place]), own, search.config)
        shards.append((search.paths[place].name, work))
    map_shards(
        segment_shard,
        shards,
        folder,
        workers=search.config.resources.workers,
        progress=search.build.progress,
        description=f"hashing {search.config.repeats}",
    )
    segment_paths = [folder / f"{path.name}.npy" for path in search.paths]
    segments = DigestFiles(segment_paths)
    repeated, _ = search.equals(search.config.repeats, np.ones(segments.num_lines, bool), 0, segment_paths)
    bounds = np.searchsorted(repeated, segments.firsts)
    return [
        cuts_of(repeated[bounds[at] : bounds[at + 1]] - segments.firsts[at], np.load(folder / f"{path.name}.lines.npy"))
        for at, path in enumerate(search.paths)
    ]


def _compare(search: _Search, digests: DigestFiles, compared: Numbers, same: Numbers) -> list[str]:
    """Make n-grams and text digests of some lines; returns the shards that have any."""
    firsts = digests.firsts
    grams_at, texts_at = np.searchsorted(compared, firsts), np.searchsorted(same, firsts)
    shards = []
    for at, (path, digest_path) in enumerate(zip(search.paths, search.digest_paths, strict=True)):
        own = CompareShard(
            str(path),
            str(digest_path),
            compared[grams_at[at] : grams_at[at + 1]] - firsts[at],
            same[texts_at[at] : texts_at[at + 1]] - firsts[at],
            search.config.shingle_words,
        )
        if len(own.grams_of) or len(own.texts_of):
            shards.append((path.name, own))
    map_shards(
        compare_shard,
        shards,
        search.folder("sets"),
        workers=search.config.resources.workers,
        progress=search.build.progress,
        description="comparing documents",
    )
    return [name for name, _ in shards]
