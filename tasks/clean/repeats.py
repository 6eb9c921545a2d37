"""Lines or paragraphs that an earlier document already has, cut out of later ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.clean.candidates import Numbers
from tasks.clean.config import DedupConfig
from tasks.clean.digests import columns, open_spool, save, text_digest
from tasks.clean.lines import read_text
from tasks.progress import StageReport
from tasks.records import source_name

SEPARATORS = {"lines": (re.compile(r"\n"), "\n"), "paragraphs": (re.compile(r"\n[ \t]*\n\s*"), "\n\n")}


def segments_of(text: str, unit: str) -> list[str]:
    """The lines or paragraphs of a text."""
    return SEPARATORS[unit][0].split(text)


def is_long(segment: str, config: DedupConfig) -> bool:
    """Whether a line or paragraph has enough words to be a repetition."""
    return len(segment.split(None, config.min_repeat_words)) >= config.min_repeat_words


def without(text: str, cut: set[int], config: DedupConfig) -> str:
    """The text without the segments whose places, among those that are long, are in `cut`."""
    left, place = [], 0
    for segment in segments_of(text, config.repeats):
        if is_long(segment, config):
            if place not in cut:
                left.append(segment)
            place += 1
        else:
            left.append(segment)
    return SEPARATORS[config.repeats][1].join(left).strip()


@dataclass(frozen=True)
class SegmentShard:
    """Work on one file: its digests, and the lines (counted from 0 in the file) that are kept so far."""

    source: str
    digests: str
    kept: Numbers
    config: DedupConfig


def segment_shard(shard: SegmentShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write the digests of all long segments, uint64 [2, segments], and the line that each is in."""
    source, spool = Path(shard.source), open_spool(Path(shard.digests))
    digests: list[bytes] = []
    lines: list[int] = []
    for number in shard.kept.tolist():
        text = read_text(spool.line(number), number + 1, source_name(source))[1]
        for segment in segments_of(text, shard.config.repeats):
            if is_long(segment, shard.config):
                digests.append(text_digest(segment))
                lines.append(number)
    names = [f"{source.name}.npy", f"{source.name}.lines.npy"]
    save(directory / names[0], columns(digests))
    save(directory / names[1], np.array(lines, np.int64))
    return names, StageReport(unit="documents")


@dataclass(frozen=True)
class Cuts:
    """What is to be cut out of the lines of one file."""

    lines: Numbers
    """The line of each cut, in order."""
    places: Numbers
    """Place of the cut among the long segments of its line."""

    def of(self, line: int) -> set[int]:
        """The places that are cut out of one line."""
        begin, end = np.searchsorted(self.lines, [line, line + 1])
        return set(self.places[begin:end].tolist())


NO_CUTS = Cuts(np.zeros(0, np.int64), np.zeros(0, np.int64))


def cuts_of(repeated: Numbers, lines: Numbers) -> Cuts:
    """`repeated` are segments of one file, counted from 0 in it; `lines` is the line of every segment."""
    own = lines[repeated]
    return Cuts(own, repeated - np.searchsorted(lines, own))
