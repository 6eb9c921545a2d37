"""Survivors copied line by line, and the report of what was dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from tasks.clean.config import DedupConfig
from tasks.clean.dedup import REASONS, Decisions, DedupReason
from tasks.clean.digests import BYTES_ROW, STATE_ROW, open_spool
from tasks.clean.lines import AS_IT_IS, REWRITTEN, LineWriter, bad_reason, document_of
from tasks.clean.repeats import Cuts, without
from tasks.clean.shards import example_of, output_name
from tasks.clean.spool import Spool
from tasks.progress import StageReport
from tasks.records import Document, source_name

EXAMPLES = 5
LEFT_OUT = 2


@dataclass(frozen=True)
class KeepShard:
    """Work on one file: its digests, and the decisions about its lines."""

    source: str
    digests: str
    decisions: Decisions
    cuts: Cuts
    config: DedupConfig


def keep_shard(shard: KeepShard, directory: Path) -> tuple[list[str], StageReport]:
    """Write the survivors of one file: runs of lines as they are, and between them what must be written anew."""
    source, spool = Path(shard.source), open_spool(Path(shard.digests))
    digests = np.load(shard.digests, mmap_mode="r")
    states = digests[STATE_ROW]
    kept = np.equal(shard.decisions.reason, 0) & (states <= REWRITTEN)
    report = StageReport(unit="documents", num_in=len(states))
    report.count("text_bytes", int(digests[BYTES_ROW][kept].sum()))
    name, output = source_name(source), output_name(source)
    # What becomes of a line: 0 copied, 1 written anew, 2 left out. Runs of equal ones are one piece of work.
    fate = np.where(kept, states, LEFT_OUT).astype(np.int8)
    fate[shard.cuts.lines] = REWRITTEN
    edges = np.flatnonzero(np.diff(fate)) + 1
    with LineWriter(directory / output) as writer:
        for first, last in pairwise([0, *edges.tolist(), len(fate)]):
            if first == last:
                continue
            if fate[first] == AS_IT_IS:
                writer.write_block(spool.block(first, last), last - first)
                continue
            for number in range(first, last):
                if fate[number] == LEFT_OUT:
                    _note(report, shard, int(states[number]), spool, number)
                    continue
                document = document_of(spool.line(number), number + 1, name)
                if cut := shard.cuts.of(number):
                    document = _without(document, cut, shard.config, report)
                if document.text or not cut:
                    writer.write_lines([document.to_json()])
    report.num_out = writer.num_documents
    return [output], report


def _without(document: Document, cut: set[int], config: DedupConfig, report: StageReport) -> Document:
    """The document without repeated segments; one of which nothing is left is counted as dropped."""
    short = replace(document, text=without(document.text, cut, config))
    report.count("repeats_cut", len(cut))
    report.count("text_bytes", len(short.text.encode()) - len(document.text.encode()))
    if not short.text:
        report.drop(DedupReason.REPEATS, example_of(document))
    return short


def _note(report: StageReport, shard: KeepShard, state: int, spool: Spool, number: int) -> None:
    """Count a line that is left out; the first few of a reason become examples."""
    bad, source = bad_reason(state), Path(shard.source)
    reason = str(bad or REASONS[shard.decisions.reason[number]])
    if report.dropped.get(reason, 0) >= EXAMPLES:
        report.drop(reason)
    elif bad:
        report.drop(reason, f"{source.name}:{number + 1}")
    else:
        document = document_of(spool.line(number), number + 1, source_name(source))
        report.drop(reason, f"like line {shard.decisions.survivor[number]}: {example_of(document)}")
