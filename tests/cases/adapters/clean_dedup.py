"""Cases of cleaning, duplicates and reading documents."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks import adopt
from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig, DedupConfig, DedupResources
from tasks.clean.language import detect_language
from tasks.clean.normalize import repair_text
from tasks.clean.stage import CLEAN, DEDUP
from tasks.errors import CorruptInputError, StageError
from tasks.records import read_lines, read_rows
from tasks.store import ArtifactStore

Case = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text(
        "".join(json.dumps({"url": f"http://example.com/{n}", "text": text}) + "\n" for n, text in enumerate(texts))
    )
    return path


def kept_texts(store: ArtifactStore, documents: DocumentShards) -> list[str]:
    shards = sorted(store.path_of(documents).glob("*.zst"))
    return [row.document.text for shard in shards for row in read_rows(shard) if row.document]


def clean_docs(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    source = tmp_path / "in.jsonl"
    labels: list[int] = []
    off: dict[str, Any] = {}
    if "jsonl" in given:
        source.write_text("\n".join(given["jsonl"]) + "\n")
    elif "texts" in given:
        write_jsonl(source, given["texts"])
    else:
        labels = [
            int(number) for number in re.findall(r"\d+", given["generate"].rpartition("for n =")[2].partition("(")[0])
        ]
        first, rest = re.findall(r"'([^']*)'", given["generate"])
        write_jsonl(source, [first + rest * (number - 1) for number in labels])
        if "language rule off" in given["generate"]:
            off = {"language_detector": "none"}
    if "texts_start_with" in expect:
        off = {"languages": ()}
    config = CleanConfig(min_tokens=given["min_tokens"], **off)
    store = ArtifactStore(tmp_path / "store")
    adopted = adopt.adopt_documents(store, [source])
    if expect.get("written") == 0:
        with pytest.raises(StageError, match="kept none of") as failure:
            store.run(CLEAN, config, [adopted])
        counts = [int(number) for number in re.findall(r"(\d+) [a-z]", str(failure.value).partition(":")[2])]
        assert sum(counts) == expect["dropped"] == expect.get("sum_of_all_reason_counters", expect["dropped"])
        return
    cleaned = store.run(CLEAN, config, [adopted])
    texts = kept_texts(store, cleaned)
    report = store.manifest_of(cleaned).report
    assert report is not None
    if "written" in expect:
        assert len(texts) == expect["written"]
    if "dropped" in expect:
        assert sum(report.dropped.values()) == expect["dropped"]
    if "sum_of_all_reason_counters" in expect:
        assert sum(report.dropped.values()) == expect["sum_of_all_reason_counters"]
    if expect.get("every_output_line_is_valid_utf8_json"):
        for shard in store.path_of(cleaned).glob("*.zst"):
            for line in read_lines(shard):
                assert isinstance(json.loads(line.decode("utf-8"))["text"], str)
    for text, start in zip(texts, expect.get("texts_start_with", ()), strict=False):
        assert text.startswith(start)
        text.encode()
    if "kept_n" in expect:
        kept = [number for number in labels if any(len(text.split()) == number for text in texts)]
        assert kept == expect["kept_n"] and not set(kept) & set(expect["dropped_n"])


def fix_text(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    texts = given.get("texts", [given.get("text")])
    repaired = [repair_text(text, CleanConfig()) for text in texts]
    if "one_of" in expect:
        assert repaired[0] in expect["one_of"]
    if "results" in expect:
        assert repaired == expect["results"]
    for wanted in expect.get("contains", ()):
        assert wanted in repaired[0]
    for once in expect.get("contains_once", ()):
        assert repaired[0].count(once) == 1
    for unwanted in expect.get("not_contains", ()):
        assert unwanted not in repaired[0]
    assert [repair_text(text, CleanConfig()) for text in repaired] == repaired


def detect(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    if "texts" in given:
        answers: dict[str, set[str]] = {text: set() for text in given["texts"]}
        script = (
            "import json, sys\nfrom tasks.clean.language import detect_language\n"
            "print(json.dumps([detect_language(text)[0] for text in json.loads(sys.argv[1])]))"
        )
        for process in range(given["processes"]):
            order = given["texts"] * max(1, given["repeat"] // given["processes"])
            random.Random(process).shuffle(order)
            done = subprocess.run(
                [sys.executable, "-c", script, json.dumps(order)], cwd=ROOT, capture_output=True, text=True, check=True
            )
            for text, answer in zip(order, json.loads(done.stdout), strict=True):
                answers[text].add(answer)
        assert {len(found) for found in answers.values()} == {expect["distinct_answers_per_text"]}
        return
    parts = re.findall(r"(\d+) x '([^']*)'", given["generate"]["A"])
    (first_count, first), (second_count, second) = parts
    texts = {
        "A": first * int(first_count) + second * int(second_count),
        "B": second * int(first_count) + first * int(second_count),
    }
    for name, wanted in expect.items():
        language = detect_language(texts[name])[0]
        assert language != wanted[4:] if wanted.startswith("not ") else language == wanted


def dedup_exact(case: Case, tmp_path: Path) -> None:
    texts = case["input"]["texts"]
    store = ArtifactStore(tmp_path / "store")
    adopted = adopt.adopt_documents(store, [write_jsonl(tmp_path / "in.jsonl", texts)])
    deduplicated = store.run(DEDUP, DedupConfig(near=False), [adopted])
    assert kept_indices(store, deduplicated) == case["expect"]["kept_indices"]


def kept_indices(store: ArtifactStore, documents: DocumentShards) -> list[int]:
    shards = sorted(store.path_of(documents).glob("*.zst"))
    rows = [row.document for shard in shards for row in read_rows(shard) if row.document]
    return [int(row.url.rpartition("/")[2]) for row in rows]


def near_texts(text: str) -> list[str]:
    """The texts that a `generate` sentence describes."""
    if "words w0..w" in text:
        return [
            " ".join(f"w{number}" for number in range(int(first), int(last) + 1))
            for first, last in re.findall(r"w(\d+)\.\.w(\d+)", text)
        ]
    if found := re.search(r"text T of (\d+) distinct words", text):
        base = " ".join(f"t{number}" for number in range(int(found[1])))
        other = " ".join(f"u{number}" for number in range(100))
        return [base, *(base + suffix for suffix in re.findall(r"T\+'([^']*)'", text)), other]
    if found := re.search(r"(\d+) documents, (\d+) base texts each with two small edits", text):
        number, bases = int(found[1]), int(found[2])
        texts = []
        for base in range(bases):
            words = [f"b{base}x{place}" for place in range(200)]
            for edit in range(number // bases):
                changed = list(words)
                if edit:
                    changed[edit * 50] = f"edit{edit}"
                texts.append(" ".join(changed))
        random.Random(5).shuffle(texts)
        return texts
    raise AssertionError(f"unknown texts: {text}")


def dedup_near(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    config = DedupConfig(threshold=given["threshold"], shingle_words=int((given.get("shingle") or "5").split()[0]))
    texts = near_texts(given["generate"])
    shards = 4 if "4 shards" in given["generate"] else 1
    size = -(-len(texts) // shards)
    for shard in range(shards):
        rows = [
            {"url": f"http://example.com/{n}", "text": texts[n]}
            for n in range(shard * size, min(len(texts), (shard + 1) * size))
        ]
        (tmp_path / f"{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = given.get("runs", [{"workers": 1, "PYTHONHASHSEED": "0"}])
    script = (
        "import sys, json\nfrom pathlib import Path\nfrom tasks import adopt\nfrom tasks.clean.config import DedupConfig\n"
        "from tasks.clean.stage import DEDUP\nfrom tasks.store import ArtifactStore\nfrom tasks.records import read_lines, read_rows\n"
        "if __name__ == '__main__':\n"
        "    adopt.DOCUMENTS_PER_SHARD = int(sys.argv[4])\n"
        "    store = ArtifactStore(Path(sys.argv[1]))\n"
        "    adopted = adopt.adopt_documents(store, sys.argv[5:])\n"
        "    made = store.run(DEDUP, DedupConfig.model_validate_json(sys.argv[2]), [adopted])\n"
        "    rows = [row.document for path in sorted(store.path_of(made).glob('*.zst')) for row in read_rows(path)]\n"
        "    Path(sys.argv[3]).write_text(json.dumps([int(row.url.rpartition('/')[2]) for row in rows if row]))\n"
    )
    (tmp_path / "child.py").write_text(script)
    answers = []
    for number, run in enumerate(runs):
        settings = config.model_copy(update={"resources": DedupResources(workers=run["workers"])})
        output = tmp_path / f"out-{number}.json"
        command = [
            sys.executable,
            str(tmp_path / "child.py"),
            str(tmp_path / f"store-{number}"),
            settings.model_dump_json(),
        ]
        command += [str(output), str(size), *(str(tmp_path / f"{shard}.jsonl") for shard in range(shards))]
        environment = {**os.environ, "PYTHONHASHSEED": run["PYTHONHASHSEED"], "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        answers.append(json.loads(output.read_text()))
    assert all(answer == answers[0] for answer in answers)
    if "kept_indices" in expect:
        assert answers[0] == expect["kept_indices"]
    if "kept" in expect:
        assert len(answers[0]) == expect["kept"]
        firsts: dict[str, int] = {}
        for number, text in enumerate(texts):
            firsts.setdefault(text.split()[-1], number)
        assert answers[0] == sorted(firsts.values()), "the first in input order survives"


def read_jsonl(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    given = case["input"]
    path.write_bytes(bytes.fromhex(given["bytes_hex"]) if "bytes_hex" in given else given["bytes_utf8"].encode())
    texts = [row.document.text for row in read_rows(path) if row.document]
    assert len(texts) == case["expect"]["records"]
    assert texts == case["expect"]["texts"]


def read_shards(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    for name, description in given["files"].items():
        number = int(re.search(r"(\d+) records", description)[1])  # type: ignore[index]
        content = gzip.compress(b"".join(b'{"text": "row %d"}\n' % row for row in range(number)))
        if found := re.search(r"last (\d+) bytes of the file removed", description):
            content = content[: -int(found[1])]
        (tmp_path / name).write_bytes(content)
    store = ArtifactStore(tmp_path / "store")
    with pytest.raises(CorruptInputError, match=re.escape(expect["names_the_file"])):
        adopt.adopt_documents(store, sorted(tmp_path.glob("*.jsonl*")))
    assert not list(store.artifacts())


ADAPTERS = {
    "clean_docs": clean_docs,
    "dedup_exact": dedup_exact,
    "dedup_near": dedup_near,
    "detect_language": detect,
    "fix_text": fix_text,
    "read_jsonl": read_jsonl,
    "read_shards": read_shards,
}
