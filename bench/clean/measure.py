"""What the measurements of cleaning, duplicates and shuffling share: documents, and timed child processes."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEER_TIMEOUT_SECONDS = 3600
# Modules whose import does something: a window, a browser, a page of text.
NOT_IMPORTED = {"antigravity", "this", "idlelib", "lib2to3", "turtle", "turtledemo", "tkinter", "test"}
PARAGRAPHS_PER_DOCUMENT = 16


@dataclass
class Figure:
    """What came of one contender."""

    name: str
    seconds: float = 0.0
    """Median of the runs, start-up included."""
    cpu_seconds: float = 0.0
    """Of the last run with all its processes; the figure to look at on a busy machine."""
    remark: str = ""
    printed: str = ""
    """The last line that it printed."""


def measure(name: str, command: Sequence[str], runs: int, *, python_path: Path | None = None) -> Figure:
    """Run a command `runs` times in fresh processes, one after another."""
    paths = [str(ROOT), *([str(python_path)] if python_path else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    figure, seconds = Figure(name), []
    for _ in range(runs):
        before, started = cpu_seconds(), time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=PEER_TIMEOUT_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Figure(name, remark=f"not measured: {error}")
        seconds.append(time.monotonic() - started)
        figure.cpu_seconds = cpu_seconds() - before
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Figure(name, remark=f"not measured: exit code {done.returncode}, {last[:160]}")
        figure.printed = (done.stdout.strip().splitlines() or [""])[-1]
    figure.seconds = statistics.median(seconds)
    return figure


def cpu_seconds() -> float:
    """CPU time of all ended child processes so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def report(figures: Sequence[Figure], num_documents: int, num_bytes: int) -> None:
    """Print every contender's figures, and its CPU time as a multiple of the first one's."""
    ours = figures[0]
    print(f"{num_documents:,} documents, {num_bytes / 1e6:.1f} MB of JSON lines; load {os.getloadavg()[0]:.1f}")
    for figure in figures:
        if not figure.seconds:
            print(f"  {figure.name:<30} {figure.remark}")
            continue
        ratio = f"{figure.cpu_seconds / ours.cpu_seconds:5.1f} x our CPU time" if ours.cpu_seconds else ""
        print(
            f"  {figure.name:<30} {figure.seconds:7.2f} s  CPU {figure.cpu_seconds:7.2f} s  "
            f"{num_documents / figure.seconds:9,.0f} docs/s  {num_bytes / figure.seconds / 1e6:7.2f} MB/s  {ratio}  "
            f"{figure.remark}"
        )


def documents_of(path: Path | None, most: int) -> list[dict[str, str]]:
    """Rows of a JSON lines file, or parts of the help pages of the standard library, at most so many."""
    if path is None:
        return _help_pages(most)
    rows: list[dict[str, str]] = []
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if len(rows) == most:
                break
            row = json.loads(line)
            rows.append({"url": str(row.get("url") or f"http://example.com/{len(rows)}"), "text": str(row["text"])})
    return rows


def _help_pages(most: int) -> list[dict[str, str]]:
    import pydoc  # a tenth of a second, which no contender should pay

    rows: list[dict[str, str]] = []
    for module in sorted(sys.stdlib_module_names - NOT_IMPORTED):
        if len(rows) >= most:
            break
        if module.startswith("_"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = pydoc.render_doc(module, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
        except (ImportError, pydoc.ErrorDuringImport):  # a module of another system
            continue
        paragraphs = text.split("\n\n")
        for start in range(0, len(paragraphs), PARAGRAPHS_PER_DOCUMENT):
            part = "\n\n".join(paragraphs[start : start + PARAGRAPHS_PER_DOCUMENT])
            rows.append({"url": f"http://example.com/{module}/{start}", "text": part})
    return rows[:most]


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """JSON lines as all contenders read them."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
