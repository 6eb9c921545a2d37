"""The shuffle against `shuf` and a plain copy of the same lines: seconds and peak memory, plain lines and zstd.

    python -m bench.shuffle [--input FILE.jsonl] [--megabytes 256] [--memory-megabytes 64] [--workers 2]

Two runs of the stage, one with all lines in memory and one with the memory setting, read plain shards and write plain
shards; so do `shuf` and `cp`. The stage also hashes what it publishes and syncs it to disk, so there is a row in which
`shuf` is followed by sha256sum and sync. Then the same with zstd on both sides, against zstdcat | shuf | zstd -1. Lines
are repeated with a number in front until there are so many megabytes. All rates are of the plain bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from bench.clean.measure import Figure, documents_of, measure
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


def stage_process(root: Path, documents: Path, compression: str, workers: int, memory_bytes: int) -> None:
    """What the process of our own stage does."""
    store = ArtifactStore(root)
    resources = ShuffleResources(workers=workers, memory_bytes=memory_bytes)
    config = ShuffleConfig.model_validate({"compression": compression, "resources": resources})
    store.produce(SHUFFLE, config, [store.load(documents)], refresh=True)


def write_lines(path: Path, rows: list[dict[str, str]], most_bytes: int) -> int:
    """Numbered lines until there are `most_bytes`; returns how many."""
    written = number = 0
    with path.open("w", encoding="utf-8") as stream:
        while written < most_bytes:
            row = rows[number % len(rows)]
            row = {"id": str(number), "url": row["url"], "text": f"{number} {row['text']}"}
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
            written += len(line.encode())
            stream.write(line)
            number += 1
    return number


def show(title: str, contenders: dict[str, list[str]], num_bytes: int, runs: int) -> None:
    """Run the contenders of one table one after another and print it; the last ones are the peers."""
    print(f"{title}: {num_bytes / 1e6:.0f} MB of plain lines; load {os.getloadavg()[0]:.1f}")
    for name, command in contenders.items():
        figure: Figure = measure(name, [sys.executable, "-c", PEAK, *command], runs)
        if not figure.seconds:
            print(f"  {name:<44} {figure.remark}")
            continue
        print(
            f"  {name:<44} {figure.seconds:7.2f} s {num_bytes / figure.seconds / 1e6:7.0f} MB/s   CPU "
            f"{figure.cpu_seconds:7.2f} s {num_bytes / figure.cpu_seconds / 1e6:7.0f} MB/s   "
            f"largest process {figure.printed} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--memory-megabytes", type=int, default=64, help="the setting of the runs by way of the disk")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        root, documents, compression, workers, memory = arguments.process
        stage_process(Path(root), Path(documents), compression, int(workers), int(memory))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        source, target = folder / "in.jsonl", folder / "out.jsonl"
        write_lines(source, documents_of(arguments.input, 20_000), arguments.megabytes * 1_000_000)
        store = ArtifactStore(folder / "store")
        packed = adopt_documents(store, [source])
        plain = store.run(
            SHUFFLE, ShuffleConfig(seed=7, compression="none", resources=ShuffleResources(workers=1)), [packed]
        )
        own = [sys.executable, "-m", "bench.shuffle", "--process", str(store.root)]
        workers, num_bytes = str(arguments.workers), source.stat().st_size
        small, large = str(arguments.memory_megabytes * 1_000_000), str(4 * num_bytes)
        ways = {f"{arguments.memory_megabytes} MB, {workers} workers": (workers, small), "in memory": (workers, large)}

        def ours(compression: str, path: Path) -> dict[str, list[str]]:
            return {
                f"url2lm, {way}": [*own, str(path), compression, number, memory]
                for way, (number, memory) in reversed(ways.items())
            }

        shuf = f"shuf {source} -o {target}"
        peers = {
            "shuf": ["sh", "-c", shuf],
            "shuf, then sha256sum and sync": ["sh", "-c", f"{shuf} && sha256sum {target} && sync {target}"],
            "cp": ["cp", str(source), str(target)],
            "cp, then sha256sum and sync": ["sh", "-c", f"cp {source} {target} && sha256sum {target} && sync {target}"],
        }
        show("plain to plain", {**ours("none", store.path_of(plain)), **peers}, num_bytes, arguments.runs)
        shards = f"{store.path_of(packed)}/*.jsonl.zst"
        pipes = {
            f"zstdcat | shuf | zstd -{level}": [
                "sh",
                "-c",
                f"zstdcat {shards} | shuf | zstd -{level} -q -f -o {target}.zst",
            ]
            for level in (1, 3)
        }
        show("zstd to zstd", {**ours("zstd", store.path_of(packed)), **pipes}, num_bytes, arguments.runs)


if __name__ == "__main__":
    main()
