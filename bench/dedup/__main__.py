"""Near duplicates: the stage against gaoya, datasketch and Megatron-LM's find_duplicates.py on the same data.

    python -m bench.dedup [--input FILE.jsonl] [--documents 5000] [--workers 1] [--peers FOLDER] [--megatron CHECKOUT]
                          [--neardup FOLDER] [--many 2000000 --memory-megabytes 256]

Near copies with a few words changed are added to the documents. The true Jaccard similarity of word 5-grams of each
document and its copy is known, so pairs at or above 0.8 of which both are left are counted, and so are dropped
documents to which no survivor is similar. Every contender is a fresh process, start-up included; what counts on a busy
machine is documents per second of CPU time. `--peers` is a folder that pip has installed gaoya and datasketch into;
`--megatron` one with tools/openwebtext/find_duplicates.py, and with the package lsh that it imports. `--neardup` tells
how many of the pairs of that data are found; `--many` runs so many short documents through a memory setting.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from bench.clean.measure import Figure, documents_of, measure, write_rows
from bench.dedup.contenders import THRESHOLD
from bench.dedup.corpora import (
    Row,
    false_merges,
    neardup_rows,
    true_similarity,
    varied,
    with_near_copies,
    write_small_documents,
)
from tasks import adopt
from tasks.records import read_rows
from tasks.store import ArtifactStore

CONTENDER = [sys.executable, "-m", "bench.dedup.contenders"]
PEERS = {
    "gaoya": "gaoya",
    "gaoya, insertions alone": "gaoya_insertions",
    "datasketch": "datasketch",
    "datasketch, signatures alone": "datasketch_signatures",
}


def run_stage(folder: Path, source: Path, number: int, workers: int, memory: int) -> tuple[Figure, set[str]]:
    """Adopt the documents (not measured), run the stage, and return its figure and the URLs that are left."""
    store = ArtifactStore(folder / f"store-{source.stem}")
    adopt.DOCUMENTS_PER_SHARD = max(1, min(20_000, -(-number // (4 * workers))))
    documents = store.path_of(adopt.adopt_documents(store, [source]))
    figure = measure(
        f"url2lm, {workers} workers",
        [*CONTENDER, "stage", str(store.root), str(documents), str(workers), str(memory)],
        1,
    )
    if not figure.seconds:
        return figure, set()
    path, figure.printed = figure.printed.rsplit(" ", 1)
    shards = sorted(Path(path).glob("*.jsonl.zst"))
    return figure, {row.document.url for shard in shards for row in read_rows(shard) if row.document is not None}


def survivors_of_pairs(found: Path, urls: list[str]) -> set[str]:
    """What is left when of each group in find_duplicates.py's file one stays, as group_duplicate_url.py groups."""
    head = {url: url for url in urls}

    def head_of(url: str) -> str:
        while head[url] != url:
            url = head[url]
        return url

    with found.open(encoding="utf-8") as lines:
        for line in lines:
            for main_url, others in json.loads(line).items():
                for one in others:
                    for url, similarity in one.items():
                        if similarity >= THRESHOLD:
                            head[head_of(url)] = head_of(main_url)
    return {url for url in urls if head[url] == url}


def finds(survivors: set[str], rows: list[Row], pairs: list[tuple[str, str]]) -> str:
    """How many documents went, how many of the known pairs stayed, and how many went for nothing, in words."""
    texts = {row["url"]: row["text"] for row in rows}
    alike = [pair for pair in pairs if true_similarity(texts[pair[0]], texts[pair[1]]) >= THRESHOLD]
    missed = sum(1 for one, two in alike if one in survivors and two in survivors)
    wrong = false_merges(texts, survivors, pairs, THRESHOLD)
    return (
        f"dropped {len(rows) - len(survivors)}, recall {1 - missed / max(1, len(alike)):.4f} of {len(alike)} known "
        f"pairs, {wrong} false merges"
    )


def compare_speed(folder: Path, arguments: argparse.Namespace) -> None:
    rows = varied(documents_of(arguments.input, arguments.documents), arguments.documents)
    rows, pairs = with_near_copies(rows, arguments.seed)
    source = write_rows(folder / "in.jsonl", rows)
    ours, survivors = run_stage(folder, source, len(rows), arguments.workers, 1 << 30)
    if ours.seconds:
        ours.remark = finds(survivors, rows, pairs)
    figures, target = [ours], folder / "out.jsonl"
    for name, contender in PEERS.items():
        command = [*CONTENDER, contender, str(source), str(target)]
        figures.append(measure(name, command, 1, python_path=arguments.peers))
        if figures[-1].seconds and "alone" not in name:
            with target.open(encoding="utf-8") as stream:
                figures[-1].remark = finds({json.loads(line)["url"] for line in stream}, rows, pairs)
    figures.append(Figure("find_duplicates.py", remark="not measured: no --megatron CHECKOUT"))
    if arguments.megatron:
        script = arguments.megatron / "tools" / "openwebtext" / "find_duplicates.py"
        found = folder / "pairs.json"
        command = [sys.executable, str(script), "--inputs", str(source), "url", "--output", str(found)]
        figures[-1] = measure("find_duplicates.py", command, 1, python_path=arguments.megatron)
        if figures[-1].seconds:
            figures[-1].remark = finds(survivors_of_pairs(found, [row["url"] for row in rows]), rows, pairs)
    num_bytes = source.stat().st_size
    print(f"{len(rows):,} documents of {num_bytes / len(rows):,.0f} bytes as JSON; load {os.getloadavg()[0]:.1f}")
    for figure in figures:
        if not figure.seconds:
            print(f"  {figure.name:<30} {figure.remark}")
            continue
        rate, ratio = len(rows) / figure.cpu_seconds, figure.cpu_seconds / ours.cpu_seconds if ours.seconds else 0.0
        print(
            f"  {figure.name:<30} {figure.seconds:7.2f} s  CPU {figure.cpu_seconds:7.2f} s  {rate:9,.0f} docs/s of CPU "
            f"{num_bytes / figure.cpu_seconds / 1e6:6.1f} MB/s  {ratio:5.1f} x our CPU  {figure.remark}"
        )


def compare_finds(folder: Path, data: Path) -> None:
    for name in ("articles", "synthetic"):
        rows, pairs = neardup_rows(data, name)
        source = write_rows(folder / f"{name}.jsonl", rows)
        _, survivors = run_stage(folder, source, len(rows), 1, 1 << 30)
        urls = [(rows[one]["url"], rows[two]["url"]) for one, two in pairs]
        print(f"  {name}: {len(rows)} texts, {finds(survivors, rows, urls)}")


def run_many(folder: Path, number: int, memory: int, workers: int) -> None:
    source = folder / "many.jsonl"
    num_bytes = write_small_documents(source, number, 1)
    figure, survivors = run_stage(folder, source, number, workers, memory)
    print(
        f"  {number:,} documents, {num_bytes / 1e6:.0f} MB, memory setting {memory / 1e6:.0f} MB: "
        f"{figure.seconds:.0f} s, CPU {figure.cpu_seconds:.0f} s, largest process {figure.printed} MB, "
        f"{len(survivors):,} left {figure.remark}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--documents", type=int, default=5000, help="at most so many, before copies are added")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", type=Path, help="a folder with gaoya and datasketch in it")
    parser.add_argument("--megatron", type=Path, help="a folder with tools/openwebtext and the package lsh")
    parser.add_argument("--neardup", type=Path, help="the folder of the near-duplicate data")
    parser.add_argument("--many", type=int, default=0, help="short documents for the run within a memory setting")
    parser.add_argument("--memory-megabytes", type=int, default=256)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.documents:
            compare_speed(Path(name), arguments)
        if arguments.neardup:
            compare_finds(Path(name), arguments.neardup)
        if arguments.many:
            run_many(Path(name), arguments.many, arguments.memory_megabytes * 1_000_000, arguments.workers)


if __name__ == "__main__":
    main()
