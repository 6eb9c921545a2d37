"""The shuffle against `shuf` and a plain copy of the same lines: seconds and peak memory.

    python -m bench.shuffle [--input FILE.jsonl] [--megabytes 256] [--memory-megabytes 64] [--workers 2]

`shuf` and `cp` read and write plain text; the stage reads and writes zstd shards, hashes what it publishes and syncs
it to disk. Lines are repeated with a number in front until there are so many megabytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.clean.measure import Figure, documents_of, measure, report
from tasks.adopt import adopt_documents
from tasks.clean.config import ShuffleConfig, ShuffleResources
from tasks.clean.stage import SHUFFLE
from tasks.store import ArtifactStore

# Runs a command and prints the peak of its resident memory; a process of its own, so that no other child counts.
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)
"""


def stage_process(root: Path, documents: Path, workers: int, memory_bytes: int) -> None:
    """What the process of our own stage does."""
    store = ArtifactStore(root)
    config = ShuffleConfig(resources=ShuffleResources(workers=workers, memory_bytes=memory_bytes))
    store.produce(SHUFFLE, config, [store.load(documents)], refresh=True)


def write_lines(path: Path, rows: list[dict[str, str]], most_bytes: int) -> int:
    """Numbered lines until there are `most_bytes`; returns how many."""
    written = number = 0
    with path.open("w", encoding="utf-8") as stream:
        while written < most_bytes:
            row = rows[number % len(rows)]
            row = {"id": str(number), "url": row["url"], "text": f"{number} {row['text']}"}
            line = json.dumps(row, ensure_ascii=False) + "\n"
            written += len(line.encode())
            stream.write(line)
            number += 1
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--memory-megabytes", type=int, default=64, help="the stage's setting")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        root, documents, workers, memory = arguments.process
        stage_process(Path(root), Path(documents), int(workers), int(memory))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        number = write_lines(source, documents_of(arguments.input, 20_000), arguments.megabytes * 1_000_000)
        store = ArtifactStore(folder / "store")
        documents_path = store.path_of(adopt_documents(store, [source]))
        memory = arguments.memory_megabytes * 1_000_000
        own = [sys.executable, "-m", "bench.shuffle", "--process", str(store.root), str(documents_path)]
        contenders = {
            f"url2lm, {arguments.workers} workers": [*own, str(arguments.workers), str(memory)],
            "shuf": ["shuf", str(source), "-o", str(folder / "shuf.jsonl")],
            "cp": ["cp", str(source), str(folder / "copy.jsonl")],
        }
        figures: list[Figure] = []
        for contender, command in contenders.items():
            figure = measure(contender, [sys.executable, "-c", PEAK, *command], arguments.runs)
            figure.remark = figure.remark or f"largest process {figure.printed} MB"
            figures.append(figure)
        report(figures, number, source.stat().st_size)


if __name__ == "__main__":
    main()
