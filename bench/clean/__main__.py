"""Cleaning: the stage against Megatron-LM's cleanup_dataset.py, or against its rules where no checkout is given.

    python -m bench.clean [--input FILE.jsonl] [--documents 1000] [--workers 1] [--megatron CHECKOUT]

Every contender is a fresh process on the same documents, start-up included. The script of every release since 2020
imports a module that is gone; a stand-in with the same method and a faster tokenizer is put in its place. Without
--input the documents are help pages of Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.clean.measure import Figure, documents_of, measure, report, write_rows
from tasks import adopt
from tasks.clean.config import CleanConfig
from tasks.clean.stage import CLEAN
from tasks.configuration import Resources
from tasks.store import ArtifactStore

STAND_IN = """
from tasks.gpt2_vocabulary import GPT2_EOD_TOKEN_ID, gpt2_tokenizer

class Tokenizer:
    def __init__(self, cache_dir=None):
        self.tokenizer = gpt2_tokenizer()
    def tokenize_document(self, document):
        return self.tokenizer.encode(document).ids + [GPT2_EOD_TOKEN_ID]
"""


def stage_process(root: Path, documents: Path, workers: int, detector: str) -> None:
    """What the process of our own stage does."""
    store = ArtifactStore(root)
    config = CleanConfig.model_validate({"language_detector": detector, "resources": Resources(workers=workers)})
    made, _ = store.produce(CLEAN, config, [store.load(documents)], refresh=True)
    print(f"kept {made.num_documents}")


def rules_process(source: Path, target: Path) -> None:
    """The rules of cleanup_dataset.py: ftfy, langdetect, and tokens of texts below 1,024 characters."""
    import ftfy
    import langdetect

    from tasks.gpt2_vocabulary import gpt2_tokenizer

    kept = 0
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        for line in lines:
            row = json.loads(line)
            row["text"] = text = ftfy.fix_text(row["text"])
            try:
                if langdetect.detect(text) != "en":
                    continue
            except langdetect.LangDetectException:
                continue
            if len(text) < 8 * 128 and len(gpt2_tokenizer().encode(text)) + 1 < 128:
                continue
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            kept += 1
    print(f"kept {kept}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--documents", type=int, default=1000, help="at most so many")
    parser.add_argument("--workers", type=int, default=1, help="the peer has one process and no other mode")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--megatron", type=Path, help="a Megatron-LM checkout")
    parser.add_argument(
        "--detectors", nargs="+", default=["pycld2", "langdetect", "none"], help="the stage is run with each"
    )
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        kind, *rest = arguments.process
        if kind == "stage":
            stage_process(Path(rest[0]), Path(rest[1]), int(rest[2]), rest[3])
        else:
            rules_process(Path(rest[0]), Path(rest[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = documents_of(arguments.input, arguments.documents)
        source = write_rows(folder / "in.jsonl", rows)
        store = ArtifactStore(folder / "store")
        # As many shards as make the workers equally busy.
        adopt.DOCUMENTS_PER_SHARD = max(1, len(rows) // (4 * arguments.workers))
        documents = store.path_of(adopt.adopt_documents(store, [source]))
        own = [sys.executable, "-m", "bench.clean", "--process"]
        figures: list[Figure] = []
        for detector in arguments.detectors:
            command = [*own, "stage", str(store.root), str(documents), str(arguments.workers), detector]
            figures.append(measure(f"url2lm, detector {detector}", command, arguments.runs))
        target = folder / "out.jsonl"
        if not arguments.megatron:
            command = [*own, "rules", str(source), str(target)]
            figures.append(measure("rules of cleanup_dataset.py", command, arguments.runs))
        figures.append(Figure("cleanup_dataset.py", remark="not measured: no --megatron CHECKOUT"))
        if arguments.megatron:
            (folder / "stand_in").mkdir()
            (folder / "stand_in" / "tokenizer.py").write_text(STAND_IN)
            script = arguments.megatron / "tools" / "openwebtext" / "cleanup_dataset.py"
            command = [sys.executable, str(script), str(source), str(target)]
            figures[-1] = measure("cleanup_dataset.py", command, arguments.runs, python_path=folder / "stand_in")
            if figures[-1].seconds:
                with target.open(encoding="utf-8") as stream:
                    figures[-1].printed = f"kept {sum(1 for _ in stream)}"
        for figure in figures:
            figure.remark = figure.remark or figure.printed
        report(figures, len(rows), source.stat().st_size)


if __name__ == "__main__":
    main()
