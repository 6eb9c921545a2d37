"""Near duplicates: the stage against datasketch and Megatron-LM's find_duplicates.py, speed and finds on the same data.

    python -m bench.dedup [--input FILE.jsonl] [--documents 5000] [--workers 1] [--megatron CHECKOUT]

Near copies with a few words changed are added to the documents. The true Jaccard similarity of word 5-grams of each
document and its copy is known, so pairs at or above 0.8 of which both are left are counted. Every contender is a fresh
process, start-up included.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from pathlib import Path

from bench.clean.measure import Figure, documents_of, measure, report, write_rows
from tasks import adopt
from tasks.clean.config import DedupConfig
from tasks.clean.stage import DEDUP
from tasks.configuration import Resources
from tasks.records import read_rows
from tasks.store import ArtifactStore

WORD = re.compile(r"\w+")
EDIT_FRACTIONS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)
COPIED_FRACTION = 0.15
THRESHOLD = 0.8


def with_near_copies(rows: list[dict[str, str]], seed: int) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """The documents with near copies of some of them, in random order, and the URLs of each pair."""
    draw = random.Random(seed)
    pairs, copies = [], []
    for place, row in enumerate(rows):
        row["url"] = f"http://example.com/{place}"
        if draw.random() < COPIED_FRACTION:
            words = row["text"].split(" ")
            for _ in range(round(draw.choice(EDIT_FRACTIONS) * len(words))):
                words[draw.randrange(len(words))] = f"w{draw.randrange(10**6)}"
            copies.append({"url": f"{row['url']}/copy", "text": " ".join(words)})
            pairs.append((row["url"], copies[-1]["url"]))
    mixed = rows + copies
    draw.shuffle(mixed)
    return mixed, pairs


def grams_of(text: str) -> set[tuple[str, ...]]:
    """Word 5-grams in lower case, the plain way."""
    words = WORD.findall(text.lower())
    return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def true_similarity(first: str, second: str) -> float:
    """Jaccard similarity of word 5-grams."""
    one, two = grams_of(first), grams_of(second)
    return len(one & two) / len(one | two)


def stage_process(root: Path, documents: Path, workers: int) -> None:
    """What the process of our own stage does."""
    store = ArtifactStore(root)
    config = DedupConfig(threshold=THRESHOLD, resources=Resources(workers=workers))
    print(store.path_of(store.produce(DEDUP, config, [store.load(documents)], refresh=True)[0]))


def datasketch_process(source: Path, target: Path) -> None:
    """The way of datasketch's documentation: 128 permutations, and an index that is asked before each insertion."""
    from datasketch import MinHash, MinHashLSH  # type: ignore[import-not-found,unused-ignore]

    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            signature = MinHash(num_perm=128)
            signature.update_batch([" ".join(gram).encode() for gram in grams_of(json.loads(line)["text"])])
            if not index.query(signature):
                index.insert(number, signature)
                out.write(line)


def survivors_of_pairs(found: Path, urls: list[str]) -> set[str]:
    """What is left when of each pair in find_duplicates.py's file the second goes."""
    dropped = set()
    with found.open(encoding="utf-8") as lines:
        for line in lines:
            for others in json.loads(line).values():
                dropped |= {url for one in others for url, similarity in one.items() if similarity >= THRESHOLD}
    return set(urls) - dropped


def finds(survivors: set[str], num_documents: int, pairs: list[tuple[str, str, float]]) -> str:
    """How many documents went, and how many of the known pairs stayed, in words."""
    alike = [(one, two) for one, two, similarity in pairs if similarity >= THRESHOLD]
    missed = sum(1 for one, two in alike if one in survivors and two in survivors)
    return f"dropped {num_documents - len(survivors)}, missed {missed} of {len(alike)} known pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--documents", type=int, default=5000, help="at most so many, before copies are added")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megatron", type=Path, help="a Megatron-LM checkout; its tool needs the package LSH 0.3")
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        kind, *rest = arguments.process
        if kind == "stage":
            stage_process(Path(rest[0]), Path(rest[1]), int(rest[2]))
        else:
            datasketch_process(Path(rest[0]), Path(rest[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, planted = with_near_copies(documents_of(arguments.input, arguments.documents), arguments.seed)
        texts = {row["url"]: row["text"] for row in rows}
        pairs = [(one, two, true_similarity(texts[one], texts[two])) for one, two in planted]
        source = write_rows(folder / "in.jsonl", rows)
        store = ArtifactStore(folder / "store")
        adopt.DOCUMENTS_PER_SHARD = max(1, len(rows) // (4 * arguments.workers))
        documents = store.path_of(adopt.adopt_documents(store, [source]))
        own = [sys.executable, "-m", "bench.dedup", "--process"]
        command = [*own, "stage", str(store.root), str(documents), str(arguments.workers)]
        figures = [measure(f"url2lm, {arguments.workers} workers", command, arguments.runs)]
        if figures[0].seconds:
            shards = sorted(Path(figures[0].printed).glob("*.jsonl.zst"))
            left = {row.document.url for shard in shards for row in read_rows(shard) if row.document is not None}
            figures[0].remark = finds(left, len(rows), pairs)
        target = folder / "datasketch.jsonl"
        figures.append(measure("datasketch", [*own, "datasketch", str(source), str(target)], arguments.runs))
        if figures[-1].seconds:
            with target.open(encoding="utf-8") as stream:
                figures[-1].remark = finds({json.loads(line)["url"] for line in stream}, len(rows), pairs)
        figures.append(Figure("find_duplicates.py", remark="not measured: no --megatron CHECKOUT"))
        if arguments.megatron:
            script = arguments.megatron / "tools" / "openwebtext" / "find_duplicates.py"
            found = folder / "pairs.json"
            command = [sys.executable, str(script), "--inputs", str(source), "url", "--output", str(found)]
            figures[-1] = measure("find_duplicates.py", command, arguments.runs)
            if figures[-1].seconds:
                figures[-1].remark = finds(survivors_of_pairs(found, list(texts)), len(rows), pairs)
        report(figures, len(rows), source.stat().st_size)


if __name__ == "__main__":
    main()
