"""Documents to .bin/.idx: the stage against `tokenizers` alone and, where a checkout is given, Megatron-LM's tools.

    python -m bench.tokenize [--input FILE.jsonl] [--workers 2] [--megatron CHECKOUT] [--megatron-python PYTHON]

Every contender is a fresh process, run one after another on the same file, start-up included; figures are medians of
MB of the jsonl file per second. Where a peer wrote its files, they are compared with ours byte by byte. Without
--input the documents are the source files of Python's standard library. A peer that is not given is "not measured".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.adopt import adopt_documents
from tasks.store import ArtifactStore
from tasks.tokenize.config import TokenizeConfig, TokenizeResources, VocabularyConfig
from tasks.tokenize.stage import LOAD_VOCABULARY, TOKENIZE

PEER_TIMEOUT_SECONDS = 3600


@dataclass
class Figure:
    """What came of one contender."""

    name: str
    seconds: list[float]
    cpu_seconds: float = 0.0
    """Of the last run, all its processes; the figure to look at on a busy machine."""
    remark: str = ""


def standard_library(path: Path, most_bytes: int) -> None:
    """Python's own source files as JSON lines."""
    written = 0
    with path.open("w", encoding="utf-8") as stream:
        for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
            if "site-packages" in file.parts or written >= most_bytes:
                continue
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            written += stream.write(json.dumps({"text": text, "url": file.as_posix()}) + "\n")


def stage_process(root: Path, documents: Path, engine: str, workers: int) -> None:
    """What the process of our own stage does."""
    store = ArtifactStore(root)
    inputs = [store.load(documents), store.run(LOAD_VOCABULARY, VocabularyConfig(), ())]
    # Megatron's reading of special tokens, so that the files can be compared.
    resources = TokenizeResources(workers=workers, engine=engine)  # type: ignore[arg-type]
    config = TokenizeConfig(special_tokens="parse", resources=resources)
    artifact, _ = store.produce(TOKENIZE, config, inputs, refresh=True)
    print(store.path_of(artifact))


def library_process(documents: Path, tokenizer_path: Path) -> None:
    """`tokenizers` alone, in all its threads, without writing a file."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    with documents.open(encoding="utf-8") as stream:
        texts = [json.loads(line)["text"] for line in stream]
    for start in range(0, len(texts), 256):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + 256]):
            _ = encoding.ids


def cpu_seconds() -> float:
    """CPU time of all ended child processes so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(name: str, command: Sequence[str], runs: int, folder: Path | None = None) -> tuple[Figure, str]:
    """Run a command `runs` times. Returns its figure and what it printed last."""
    figure, printed = Figure(name, []), ""
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for _ in range(runs):
        started, cpu_before = time.monotonic(), cpu_seconds()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, cwd=folder, timeout=PEER_TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Figure(name, [], remark=f"not measured: still running after {PEER_TIMEOUT_SECONDS} s"), ""
        seconds = time.monotonic() - started
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Figure(name, [], remark=f"not measured: exit code {done.returncode}, {last[:160]}"), ""
        figure.seconds.append(seconds)
        figure.cpu_seconds = cpu_seconds() - cpu_before
        printed = (done.stdout.strip().splitlines() or [""])[-1]
    return figure, printed


def peers(arguments: argparse.Namespace, source: Path, tokenizer: Path, folder: Path) -> list[tuple[Figure, Path]]:
    """Megatron-LM's tools, those of them that the checkout has."""
    found: list[tuple[Figure, Path]] = []
    for tool, extra in (("preprocess_data.py", ["--workers", str(arguments.workers)]),
                        ("preprocess_data_fast.py", ["--use-gigatoken"])):  # fmt: skip
        prefix = folder / tool.removesuffix(".py")
        written = Path(f"{prefix}_text_document")
        if arguments.megatron is None:
            found.append((Figure(tool, [], remark="not measured: no --megatron CHECKOUT"), written))
            continue
        script = arguments.megatron / "tools" / tool
        if not script.is_file():
            found.append((Figure(tool, [], remark="not measured: the checkout has no such tool"), written))
            continue
        command = [
            arguments.megatron_python, str(script), "--input", str(source), "--output-prefix", str(prefix),
            "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(tokenizer), "--append-eod", *extra,
        ]  # fmt: skip
        found.append((measure(tool, command, arguments.runs, arguments.megatron)[0], written))
    return found


def same_bytes(ours: Path, theirs: Path) -> str:
    """Whether two pairs are equal, in words."""
    for suffix in (".bin", ".idx"):
        one, two = ours.with_name(ours.name + suffix), theirs.with_name(theirs.name + suffix)
        if not two.is_file():
            return "wrote no files"
        if one.read_bytes() != two.read_bytes():
            return f"{suffix} differs from ours"
    return "same bytes as ours"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="JSON lines with a field text")
    parser.add_argument("--megabytes", type=int, default=20, help="size of the standard library's sample")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megatron", type=Path, help="a Megatron-LM checkout")
    parser.add_argument("--megatron-python", default=sys.executable, help="an interpreter with what it needs")
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        kind, *rest = arguments.process
        if kind == "stage":
            stage_process(Path(rest[0]), Path(rest[1]), rest[2], int(rest[3]))
        else:
            library_process(Path(rest[0]), Path(rest[1]))
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = arguments.input.resolve() if arguments.input else folder / "stdlib.jsonl"
        if not arguments.input:
            standard_library(source, arguments.megabytes * 1_000_000)
        store = ArtifactStore(folder / "store")
        documents = store.path_of(adopt_documents(store, [source]))
        tokenizer = store.path_of(store.run(LOAD_VOCABULARY, VocabularyConfig(), ()))
        own = [sys.executable, "-m", "bench.tokenize", "--process"]
        figures: list[Figure] = []
        ours: Path | None = None
        engines = ["tokenizers"] + (["fastokens"] if importlib.util.find_spec("fastokens") else [])
        for engine in engines:
            command = [*own, "stage", str(store.root), str(documents), engine, str(arguments.workers)]
            figure, printed = measure(f"url2lm, {engine}, {arguments.workers} workers", command, arguments.runs)
            figures.append(figure)
            ours = Path(printed) / "corpus" if printed else ours
        if len(engines) == 1:
            figures.append(Figure("url2lm, fastokens", [], remark="not measured: fastokens is not installed"))
        library = [*own, "library", str(source), str(tokenizer / "tokenizer.json")]
        figures.append(measure("tokenizers alone", library, arguments.runs)[0])
        for figure, written in peers(arguments, source, tokenizer, folder):
            if figure.seconds and ours is not None:
                figure.remark = same_bytes(ours, written)
            figures.append(figure)
        report(figures, source.stat().st_size / 1e6)


def report(figures: list[Figure], megabytes: float) -> None:
    best = min(
        (figure for figure in figures if figure.seconds and figure.name.startswith("url2lm")),
        key=lambda figure: statistics.median(figure.seconds),
        default=None,
    )
    print(f"{megabytes:.1f} MB of JSON lines; load {os.getloadavg()[0]:.1f}")
    for figure in figures:
        if not figure.seconds:
            print(f"{figure.name:<34} {figure.remark}")
            continue
        seconds = statistics.median(figure.seconds)
        ratio = ""
        if best is not None and not figure.name.startswith("url2lm"):
            wall, cpu = seconds / statistics.median(best.seconds), figure.cpu_seconds / best.cpu_seconds
            ratio = f"ours: {wall:.1f}x as fast, {cpu:.1f}x by CPU time"
        print(
            f"{figure.name:<34} {megabytes / seconds:8.2f} MB/s  {seconds:7.2f} s "
            f"({min(figure.seconds):.2f}-{max(figure.seconds):.2f}), {figure.cpu_seconds:.1f} s CPU  "
            f"{ratio}  {figure.remark}"
        )


if __name__ == "__main__":
    main()
