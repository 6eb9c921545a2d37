"""Survivors copied line by line, and the report of what was dropped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from tasks.clean.dedup import REASONS, Decisions
from tasks.clean.digests import BYTES_ROW, STATE_ROW
from tasks.clean.lines import AS_IT_IS, LineWriter, bad_reason, document_of, line_lists, source_name
from tasks.clean.shards import example_of, output_name
from tasks.progress import StageReport

EXAMPLES = 5


@dataclass(frozen=True)
class KeepShard:
    """Work on one file: its digests, and the decisions about its lines."""

    source: str
    digests: str
    decisions: Decisions


def keep_shard(shard: KeepShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write the survivors of one file."""
    source = Path(shard.source)
    digests = np.load(shard.digests, mmap_mode="r")
    states, kept = digests[STATE_ROW], np.equal(shard.decisions.reason, 0) & (digests[STATE_ROW] <= 1)
    report = StageReport(unit="documents", num_in=len(states), num_out=int(np.count_nonzero(kept)))
    report.count("text_bytes", int(digests[BYTES_ROW][kept].sum()))
    name, output, first = source_name(source), output_name(source), 0
    with LineWriter(directory / output) as writer:
        for lines in line_lists(source):
            part = slice(first, first + len(lines))
            for place in np.flatnonzero(~kept[part]).tolist():
                _note(report, shard, int(states[first + place]), lines[place], first + place, name)
            for place in np.flatnonzero(kept[part] & (states[part] != AS_IT_IS)).tolist():
                lines[place] = document_of(lines[place], first + place + 1, name).to_json()
            writer.write_lines(list(compress(lines, kept[part].tolist())))
            first += len(lines)
    return [output], report


def _note(report: StageReport, shard: KeepShard, state: int, line: bytes, number: int, name: str) -> None:
    """Count a line that is left out; the first few of a reason become examples."""
    bad = bad_reason(state)
    reason = str(bad or REASONS[shard.decisions.reason[number]])
    if report.dropped.get(reason, 0) >= EXAMPLES:
        report.drop(reason)
    elif bad:
        report.drop(reason, f"{Path(shard.source).name}:{number + 1}")
    else:
        document = document_of(line, number + 1, name)
        report.drop(reason, f"like line {shard.decisions.survivor[number]}: {example_of(document)}")
