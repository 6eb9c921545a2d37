"""What a stage says while it works (Progress) and what it says when it is done (StageReport)."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from tasks.errors import StageError


class Progress(Protocol):
    """Where a stage reports that it is alive. Implementations must be cheap: called once a record is fine."""

    def start(self, description: str, total: int | None, unit: str) -> None:
        """A piece of work begins: `total` units, or None when unknown."""

    def advance(self, amount: int = 1) -> None:
        """`amount` more units are done."""

    def note(self, message: str) -> None:
        """One plain sentence the user should see (a warning, a fallback taken, a milestone)."""

    def metric(self, event: dict[str, object]) -> None:
        """One machine-readable event of a child process (a training step, an evaluation)."""


class SilentProgress:
    """Says nothing; keeps the notes and metrics so that a test can look at them."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.metrics: list[dict[str, object]] = []

    def start(self, description: str, total: int | None, unit: str) -> None:
        del description, total, unit

    def advance(self, amount: int = 1) -> None:
        del amount

    def note(self, message: str) -> None:
        self.notes.append(message)

    def metric(self, event: dict[str, object]) -> None:
        self.metrics.append(event)


EXAMPLE_CHARACTERS = 200
MAX_DOMAINS = 2000
"""Sites that the report of a shard holds."""
MAX_SUMMED_DOMAINS = 100_000
"""Sites that are held while the reports of shards are added up."""
NUM_REPORTED_DOMAINS = 20
_SEED = 0x9E3779B9


def keep_sample(kept: list[str], example: str, size: int) -> None:
    """Make `example` part of a sample of up to `size` different ones, or leave it out.

    The examples with the smallest checksums stay, in the order in which they came. Which these are depends on all
    examples together and not on how they were spread over shards and workers.
    """
    if example in kept:
        return
    kept.append(example)
    if len(kept) > size:
        kept.remove(max(kept, key=_lot))


def _lot(example: str) -> tuple[int, str]:
    return zlib.crc32(example.encode("utf-8", "surrogatepass"), _SEED), example


def largest(domains: Mapping[str, Mapping[str, int]], number: int) -> dict[str, dict[str, int]]:
    """The sites with most records, largest first, with their counts by label in alphabetical order."""
    totals = [(-sum(counts.values()), domain) for domain, counts in domains.items()]
    return {domain: dict(sorted(domains[domain].items())) for _, domain in heapq.nsmallest(number, totals)}


class StageReport(BaseModel):
    """What went in, what came out, and why the rest did not. Reports of shards add up."""

    model_config = ConfigDict(extra="forbid")

    unit: str
    """What is counted: "lines", "urls", "pages", "documents", "steps" ..."""
    num_in: int = 0
    num_out: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)
    """Records that did not come out, by reason."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Anything else worth counting (records changed by repair, bytes, retries); plays no part in the balance."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """Measured numbers (bytes per token, last loss)."""
    examples: dict[str, list[str]] = Field(default_factory=dict)
    """A few records for each reason, cut short, so that a person can judge the rule; drawn by lot (keep_sample)."""
    domains: dict[str, dict[str, int]] = Field(default_factory=dict)
    """The sites with most records, largest first: what became of theirs, by reason."""
    statuses: dict[str, int] = Field(default_factory=dict)
    """HTTP answers by status."""

    def drop(self, reason: str, example: str | None = None, num_examples: int = 5) -> None:
        """Count one dropped record; keeps at most `num_examples` examples a reason."""
        reason = str(reason)  # a member of an enum counts as its value, also before it went through JSON
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if example is not None:
            keep_sample(self.examples.setdefault(reason, []), example[:EXAMPLE_CHARACTERS], num_examples)

    def place(self, domain: str, label: str) -> None:
        """Count one record of a site under what became of it. With too many sites the smallest are forgotten."""
        counts = self.domains.get(domain)
        if counts is None:
            if len(self.domains) >= MAX_DOMAINS:
                self.domains = largest(self.domains, MAX_DOMAINS // 2)
            counts = self.domains[domain] = {}
        counts[label] = counts.get(label, 0) + 1

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a free counter."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def check_balance(self) -> None:
        """Every record that went in came out or has a reason. Raises StageError otherwise."""
        if self.num_in != self.num_out + sum(self.dropped.values()):
            raise StageError(
                f"report out of balance: {self.num_in} {self.unit} in, {self.num_out} out, "
                f"{sum(self.dropped.values())} dropped {self.dropped}"
            )


def add_reports(reports: Iterable[StageReport], unit: str, num_examples: int = 5) -> StageReport:
    """The sum of the reports of shards, in shard order (numbers of the last shard win)."""
    total = StageReport(unit=unit)
    dropped: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    domains: dict[str, dict[str, int]] = {}
    for report in reports:
        total.num_in += report.num_in
        total.num_out += report.num_out
        dropped.update(report.dropped)
        counts.update(report.counts)
        total.numbers.update(report.numbers)
        for reason, examples in report.examples.items():
            for example in examples:
                keep_sample(total.examples.setdefault(reason, []), example, num_examples)
        statuses.update(report.statuses)
        for domain, labels in report.domains.items():
            known = domains.setdefault(domain, {})
            for label, number in labels.items():
                known[label] = known.get(label, 0) + number
        if len(domains) > MAX_SUMMED_DOMAINS:  # millions of sites with a page each would fill the memory
            domains = largest(domains, MAX_SUMMED_DOMAINS // 2)
    total.dropped = dict(sorted(dropped.items()))
    total.counts = dict(sorted(counts.items()))
    total.statuses = dict(sorted(statuses.items()))
    total.domains = largest(domains, NUM_REPORTED_DOMAINS)
    return total
