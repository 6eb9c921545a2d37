"""Rules of quality: documents a second against datatrove's filters with the same rules, and how often the two agree.

    python -m bench.clean.quality [--input FILE.jsonl] [--documents 300] [--peers FOLDER]

datatrove (0.10) is looked for in the environment, or in FOLDER (pip install --target FOLDER datatrove spacy nltk);
without it, it is "not measured". Both are timed in one process each, one thread, CPU time, on the same texts, start-up
left out. The verdicts differ where words do: datatrove counts a sign of punctuation as a word of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.clean.measure import ROOT, documents_of
from tasks.clean.config import CleanConfig
from tasks.clean.normalize import repair_text
from tasks.clean.quality_measures import measure_text, measures_of
from tasks.clean.quality_rules import Rule, first_failed, rules_of

# Our rules that one filter of datatrove has: it has them by preset, and Gopher's in two filters.
GROUPS: dict[str, Callable[[Rule], bool]] = {
    "gopher quality": lambda rule: rule.preset == "gopher" and not _repeats(rule),
    "gopher repetition": lambda rule: rule.preset == "gopher" and _repeats(rule),
    "fineweb": lambda rule: rule.preset == "fineweb",
}


def _repeats(rule: Rule) -> bool:
    return "repeated" in rule.name or "top_" in rule.name


def ours(texts: list[str]) -> dict[str, tuple[float, list[bool]]]:
    """CPU seconds and verdicts of our rules, by group."""
    found: dict[str, tuple[float, list[bool]]] = {}
    rules = rules_of(("gopher", "fineweb"))
    for name, belongs in {**GROUPS, "all": lambda rule: True}.items():
        chosen = tuple(rule for rule in rules if belongs(rule))
        measures = measures_of(chosen)
        started = time.process_time()
        kept = [first_failed(chosen, measure_text(text, measures, "en")) is None for text in texts]
        found[name] = (time.process_time() - started, kept)
    return found


def peer_process(source: Path) -> None:
    """What the peer's process does: print its figures as JSON."""
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import (  # type: ignore[import-not-found]
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    texts = json.loads(source.read_text(encoding="utf-8"))
    filters = {
        "gopher quality": GopherQualityFilter(),
        "gopher repetition": GopherRepetitionFilter(),
        "fineweb": FineWebQualityFilter(),
    }
    found: dict[str, tuple[float, list[bool]]] = {}
    for name, one in filters.items():
        one.filter(Document(text=texts[0], id="0"))
        started = time.process_time()
        verdicts = [one.filter(Document(text=text, id="0")) for text in texts]
        found[name] = (time.process_time() - started, [verdict is True for verdict in verdicts])
    seconds = sum(taken for taken, _ in found.values())
    found["all"] = (seconds, [all(row) for row in zip(*(v for _, v in found.values()), strict=True)])
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--documents", type=int, default=300, help="at most so many")
    parser.add_argument("--peers", type=Path, help="a folder with datatrove")
    parser.add_argument("--process", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        peer_process(arguments.process)
        return
    # Repaired texts: a carriage return at the end of each line is none of what the rules are about.
    texts = [repair_text(row["text"], CleanConfig()) for row in documents_of(arguments.input, arguments.documents)]
    mine = ours(texts)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "texts.json"
        source.write_text(json.dumps(texts), encoding="utf-8")
        paths = [str(ROOT), *([str(arguments.peers)] if arguments.peers else [])]
        done = subprocess.run(
            [sys.executable, "-m", "bench.clean.quality", "--process", str(source)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True,
        )  # fmt: skip
    peer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    print(f"{len(texts)} documents, {sum(map(len, texts)) / 1e6:.1f} M characters; CPU time of one thread")
    for name, (seconds, kept) in mine.items():
        line = f"  {name:<18} url2lm {len(texts) / seconds:9,.0f} docs/s"
        if name in peer:
            theirs, verdicts = peer[name]
            agree = sum(one == other for one, other in zip(kept, verdicts, strict=True)) / len(kept)
            line += f"   datatrove {len(texts) / theirs:7,.0f} docs/s   {theirs / seconds:5.1f} x"
            line += f"   same verdict {agree:.1%}"
        print(line)
    if not peer:
        print(f"  datatrove: not measured ({(done.stderr.strip().splitlines() or ['no message'])[-1][:200]})")


if __name__ == "__main__":
    main()
