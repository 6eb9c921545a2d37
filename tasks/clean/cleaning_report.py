"""The report of cleaning: what the corpus was before and after, and seeded examples for every reason.

Each shard writes its part; the parts add up in any order to the same report, whatever the number of workers. Hosts are
counted exactly and in bounded memory: their parts are added up a slice of all hosts at a time.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tasks.clean.quality_rules import Rule
from tasks.records import Document

REPORT_NAME = "report.json"
PARTS_FOLDER = ".report"
NUM_EXAMPLES = 10
NUM_HOSTS = 50
EXAMPLE_CHARACTERS = 300
HOSTS_AT_A_TIME = 1_000_000
_PLAIN_URL = re.compile("https?://([a-z0-9.-]+)(?:[/?#]|$)")
# Buckets that are no half-octave.
NOTHING, NEGATIVE, ZERO = 10_000, -10_001, -10_000


def host_of(url: str) -> str:
    """The host of a URL without "www."; "" for none."""
    if (plain := _PLAIN_URL.match(url)) is not None:
        return plain[1].removeprefix("www.")
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host.removeprefix("www.")


def bucket_of(number: float) -> int:
    """The half-octave of a number: floor(2 log2 number), or NOTHING for NaN, ZERO, NEGATIVE."""
    if number > 0:
        return math.floor(2 * math.log2(number))
    return ZERO if number == 0 else NEGATIVE if number < 0 else NOTHING


def bucket_name(bucket: int) -> str:
    """The lower end of a bucket in 4 digits; "none" for NaN, "-" for numbers below zero."""
    return {NOTHING: "none", ZERO: "0", NEGATIVE: "-"}.get(bucket) or f"{2 ** (bucket / 2):.4g}"


class ReportPart:
    """What one shard says about its documents."""

    def __init__(self, shard: str, seed: int) -> None:
        """`shard` is the name of the input file, `seed` chooses the examples."""
        self.shard, self.seed = shard, seed
        self.counters: dict[str, tuple[dict[str | int, int], dict[str | int, int]]] = {}
        self.hosts: dict[str, list[int]] = {}
        self.examples: dict[str, list[tuple[str, dict[str, Any]]]] = {}

    def add(
        self,
        row: int,
        document: Document,
        original_characters: int,
        language: str,
        reason: str,
        numbers: Mapping[str, float],
        failed: Sequence[Rule],
    ) -> None:
        """Count one document. `reason` is "" for a kept one; `failed` are all rules that it fails."""
        kept = not reason
        self._count("characters", bucket_of(original_characters), bucket_of(len(document.text)) if kept else None)
        self._count("languages", language or "none", (language or "none") if kept else None)
        for measure, number in numbers.items():
            bucket = bucket_of(number)
            self._count(f"measure:{measure}", bucket, bucket if kept else None)
        for rule in failed:
            self._count("rules", rule.name, None)
        host = self.hosts.setdefault(host_of(document.url), [0, 0])
        host[0] += 1
        host[1] += kept
        key = hashlib.blake2b(f"{self.seed}\0{self.shard}\0{row}".encode(), digest_size=8).hexdigest()
        kind = reason or "kept"
        found = self.examples.setdefault(kind, [])
        if len(found) < NUM_EXAMPLES or key < found[-1][0]:
            example: dict[str, Any] = {"id": document.id, "url": document.url, "file": self.shard, "line": row}
            example["text"] = document.text[:EXAMPLE_CHARACTERS]
            if failed and failed[0].name == reason:
                example |= {"number": numbers[failed[0].measure], "threshold": failed[0].threshold}
            found.append((key, example))
            found.sort(key=lambda pair: pair[0])
            del found[NUM_EXAMPLES:]

    def add_bad_row(self, row: int, reason: str, raw: bytes) -> None:
        """Note a line that is no document."""
        key = hashlib.blake2b(f"{self.seed}\0{self.shard}\0{row}".encode(), digest_size=8).hexdigest()
        found = self.examples.setdefault(reason, [])
        found.append((key, {"file": self.shard, "line": row, "text": raw.decode("utf-8", "replace")}))
        found.sort(key=lambda pair: pair[0])
        del found[NUM_EXAMPLES:]

    def _count(self, group: str, before: str | int, after: str | int | None) -> None:
        pair = self.counters.get(group)
        if pair is None:
            pair = self.counters[group] = ({}, {})
        pair[0][before] = pair[0].get(before, 0) + 1
        if after is not None:
            pair[1][after] = pair[1].get(after, 0) + 1

    def write(self, path: Path) -> None:
        """Write the part so that it appears whole or not at all."""
        value = {"counters": self.counters, "hosts": self.hosts, "examples": self.examples}
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(path)


def write_report(parts: Sequence[Path], directory: Path, totals: dict[str, Any], rules: Iterable[Rule]) -> None:
    """Add up the parts of all shards into `directory`/report.json; `totals` are the stage's own counts."""
    counters: dict[str, Counter[str]] = {}
    examples: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    num_hosts = 0
    for path in parts:
        part = json.loads(path.read_bytes())
        num_hosts += len(part["hosts"])
        for group, (before, after) in part["counters"].items():
            counters.setdefault(f"{group}:before", Counter()).update(before)
            counters.setdefault(f"{group}:after", Counter()).update(after)
        for reason, found in part["examples"].items():
            pairs = [*examples.get(reason, []), *map(tuple, found)]
            examples[reason] = heapq.nsmallest(NUM_EXAMPLES, pairs, key=lambda pair: pair[0])
    distributions: dict[str, dict[str, dict[str, int]]] = {}
    for group, counter in sorted(counters.items()):
        name, _, when = group.rpartition(":")
        if name not in ("rules", "languages"):
            distributions.setdefault(name.removeprefix("measure:"), {})[when] = {
                bucket_name(bucket): counter[str(bucket)] for bucket in sorted(map(int, counter))
            }
    failing = counters.get("rules:before", Counter())
    value = {
        **totals,
        "languages": {when: _by_number(counters.get(f"languages:{when}", Counter())) for when in ("before", "after")},
        "rules": [
            {
                "name": rule.name, "measure": rule.measure, "threshold": rule.threshold, "source": rule.source,
                "failed": failing[rule.name], "dropped": totals["dropped"].get(rule.name, 0),
            }
            for rule in rules
        ],
        "distributions": distributions,
        "hosts": _top_hosts(parts, num_hosts),
        "examples": {reason: [example for _, example in found] for reason, found in sorted(examples.items())},
    }  # fmt: skip
    (directory / REPORT_NAME).write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


def _by_number(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda pair: (-pair[1], pair[0])))


def _top_hosts(parts: Sequence[Path], num_hosts: int) -> list[dict[str, Any]]:
    """The hosts with most documents before cleaning, ties by name."""
    slices = 1 + num_hosts // HOSTS_AT_A_TIME
    best: list[tuple[int, str, int]] = []
    for one in range(slices):
        total: dict[str, list[int]] = {}
        for path in parts:
            for host, (before, after) in json.loads(path.read_bytes())["hosts"].items():
                if zlib.crc32(host.encode()) % slices == one:
                    count = total.setdefault(host, [0, 0])
                    count[0] += before
                    count[1] += after
        best += [(-before, host, after) for host, (before, after) in total.items() if host]
        best = heapq.nsmallest(NUM_HOSTS, best)
    return [{"host": host, "before": -before, "after": after} for before, host, after in best]
