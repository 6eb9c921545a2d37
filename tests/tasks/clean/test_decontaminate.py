from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.artifacts import DocumentShards
from tasks.clean.benchmark_ngrams import Finder, benchmark_ngrams, benchmark_texts
from tasks.clean.config import DecontaminateConfig
from tasks.clean.decontaminate import DecontaminateReason, pieces_of
from tasks.clean.shingles import encode, roll, words_of
from tasks.clean.stage import DECONTAMINATE
from tasks.configuration import Resources
from tasks.errors import UserError
from tasks.progress import StageReport
from tasks.records import Document
from tasks.store import ArtifactStore

Corpus = Callable[..., DocumentShards]
Read = Callable[[DocumentShards], list[Document]]
ONE = Resources(workers=1)
QUESTION = "Which lamp in the old harbour was lit first when the tide turned before dawn"  # 15 words
SHORT = "Count every boat twice before the tide turns"  # 8 words


def filler(seed: int, sentences: int = 12) -> str:
    draw = random.Random(seed)
    return " ".join(f"{' '.join(f'w{draw.randrange(10**6)}' for _ in range(9))}." for _ in range(sentences))


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    path = tmp_path / "benchmark.jsonl"
    rows = [
        {"question": QUESTION, "choices": [SHORT, "too short"], "label": 3},
        {"question": "seven words are no match at all", "choices": []},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def report_of(store: ArtifactStore, made: DocumentShards) -> StageReport:
    report = store.manifest_of(made).report
    assert report is not None
    report.check_balance()
    return report


def test_matches_are_cut_out_and_the_rest_stays(
    store: ArtifactStore, corpus: Corpus, read: Read, benchmark: Path
) -> None:
    long, other = filler(1), filler(2)
    rows = [
        {"id": "clean", "url": "http://a/0", "text": long, "extra": [1]},
        {"id": "middle", "url": "http://a/1", "text": f"{long} {QUESTION.upper()}! {other}", "title": "é"},
        {"id": "end", "url": "http://a/2", "text": f"{long} {QUESTION.replace(' ', ', ')}"},
        {"id": "short one", "url": "http://a/3", "text": f"{long} {SHORT}... {other}"},
        {"id": "all", "url": "http://a/4", "text": f"So: {QUESTION}?"},
        {"id": "one word less", "url": "http://a/5", "text": " ".join(QUESTION.split()[:12])},
    ]
    made = store.run(DECONTAMINATE, DecontaminateConfig(benchmarks=(benchmark,), resources=ONE), [corpus(rows, 4)])
    left = {document.id: document for document in read(made)}
    assert list(left) == ["clean", "middle/0", "middle/1", "end", "short one/0", "short one/1", "one word less"]
    assert left["clean"].text == long and left["clean"].extra == {"extra": [1]}
    for name in ("middle/0", "middle/1", "end", "short one/0", "short one/1"):
        assert left[name].text.endswith(".") and left[name].text in (long if name[-1] != "1" else other)
        assert len(long) - 320 < len(left[name].text) < len(long) - 199
    assert left["middle/1"].url == "http://a/1" and left["middle/1"].extra == {"title": "é"}
    report = report_of(store, made)
    assert report.dropped == {DecontaminateReason.NOTHING_LEFT: 1}
    assert (report.counts["documents_cut"], report.counts["pieces_added"]) == (3, 2)
    assert made.num_text_bytes == sum(len(document.text.encode()) for document in left.values())


def test_whole_documents_are_dropped_by_setting(
    store: ArtifactStore, corpus: Corpus, read: Read, benchmark: Path
) -> None:
    texts = [filler(1), f"{filler(2)} {SHORT}. {filler(3)}"]
    config = DecontaminateConfig(benchmarks=(benchmark,), mode="drop", resources=ONE)
    made = store.run(DECONTAMINATE, config, [corpus(texts)])
    assert [document.id for document in read(made)] == ["0"]
    assert report_of(store, made).dropped == {DecontaminateReason.OVERLAP: 1}
    assert SHORT in report_of(store, made).examples[DecontaminateReason.OVERLAP][0]


def test_common_phrases_and_shredded_documents(
    store: ArtifactStore, corpus: Corpus, read: Read, benchmark: Path
) -> None:
    shredded = " ".join(f"{filler(number, 9)} {QUESTION}." for number in range(12))
    texts = [shredded, *(f"{filler(20 + number)} {SHORT}." for number in range(3))]
    documents = corpus(texts, 2)

    def kept(common: int) -> tuple[list[str], StageReport]:
        config = DecontaminateConfig(benchmarks=(benchmark,), common_documents=common, resources=ONE)
        made = store.run(DECONTAMINATE, config, [documents])
        return [document.text for document in read(made)], report_of(store, made)

    left, report = kept(3)
    assert left == texts[1:], "what three documents say is common"
    assert report.dropped == {DecontaminateReason.TOO_MANY_PIECES: 1}
    assert report.counts["benchmark_ngrams_common"] == 1
    left, report = kept(4)
    assert len(left) == 3 and not any(SHORT in text for text in left)
    assert kept(0)[0] == left


def test_same_bytes_for_any_number_of_workers(store: ArtifactStore, corpus: Corpus, benchmark: Path) -> None:
    documents = corpus([f"{filler(n)} {QUESTION if n % 3 else ''} {filler(n + 50)}" for n in range(12)], 4)
    made = [
        store.run(
            DECONTAMINATE,
            DecontaminateConfig(benchmarks=(benchmark,), resources=Resources(workers=workers)),
            [documents],
            refresh=True,
        )
        for workers in (1, 2)
    ]
    assert made[0].fingerprint == made[1].fingerprint != documents.fingerprint


WORDS = st.sampled_from(["a", "B", "tide", "Boat", "é", "中", "港中", "longerthaneight", "x_1"])
TEXTS = st.lists(st.lists(WORDS, max_size=14).map(", ".join), min_size=1, max_size=4)


@given(TEXTS, TEXTS)
@settings(max_examples=150, deadline=None)
def test_found_n_grams_are_those_of_a_slow_search(texts: list[str], benchmarks: list[str]) -> None:
    size, least = 4, 2

    def words(text: str) -> list[str]:
        encoded = encode(text)
        cut = words_of([encoded])
        starts = cut.starts[0]
        spans = zip((cut.begins - starts).tolist(), (cut.ends - starts).tolist(), strict=True)
        return [encoded[first:last].decode().lower() for first, last in spans]

    wanted: dict[int, set[tuple[str, ...]]] = {}
    grams: dict[int, list[np.ndarray]] = {}  # type: ignore[type-arg]
    for text in benchmarks:
        own = words(text)
        length = min(size, len(own))
        if length >= least:
            wanted.setdefault(length, set()).update(tuple(own[at : at + length]) for at in range(len(own) - length + 1))
            grams.setdefault(length, []).append(roll(words_of([encode(text)]).hashes, length))
    if not wanted:
        return
    found = Finder([(n, np.unique(np.concatenate(grams[n]))) for n in sorted(grams)]).find(
        words_of([encode(text) for text in texts])
    )
    spans = set(zip(found.texts.tolist(), found.begins.tolist(), found.ends.tolist(), strict=True))
    assert len(spans) == len(found.texts)
    expected = set()
    for number, text in enumerate(texts):
        cut = words_of([encode(text)])
        begins, ends, own = cut.begins - cut.starts[0], cut.ends - cut.starts[0], words(text)
        for length, tuples in wanted.items():
            for at in range(len(own) - length + 1):
                if tuple(own[at : at + length]) in tuples:
                    expected.add((number, int(begins[at]), int(ends[at + length - 1])))
    assert spans == expected


def split_as_filter_ngrams_does(text: str, first: int, last: int, side: int) -> tuple[str, str]:
    """The rule of Megatron-LM's filter_ngrams.py, character by character, for a match [first, last)."""
    place, left, right = first - side, "", ""
    while place > 0 and text[place] not in ".!?":
        place -= 1
    if place > 0:
        left = text[: place + 1]
    place = last + side
    while place < len(text) and text[place] not in ".!?":
        place += 1
    if place + 1 < len(text):
        right = text[place + 1 :]
    return left, right


@given(st.text(st.sampled_from("ab.! "), min_size=1, max_size=80), st.data(), st.integers(0, 9), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_cuts_are_those_of_filter_ngrams(text: str, data: st.DataObject, side: int, least: int) -> None:
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first + 1, len(text)))
    config = DecontaminateConfig(cut_characters=side, min_piece_characters=least)
    sides = split_as_filter_ngrams_does(text, first, last, side)
    assert pieces_of(text, [(first, last)], config) == [side for side in sides if len(side) > least]


def test_benchmark_files(tmp_path: Path, benchmark: Path) -> None:
    assert list(benchmark_texts(benchmark, ()))[:3] == [QUESTION, SHORT, "too short"]
    assert list(benchmark_texts(benchmark, ("question",))) == [QUESTION, "seven words are no match at all"]
    plain = tmp_path / "plain.txt.gz"
    plain.write_bytes(gzip.compress(f"{QUESTION[:30]}\n{QUESTION[30:]}\n\n \nsecond\n".encode()))
    assert list(benchmark_texts(plain, ())) == [f"{QUESTION[:30]}\n{QUESTION[30:]}", "second"]
    sizes = [(size, len(hashes)) for size, hashes in benchmark_ngrams(DecontaminateConfig(benchmarks=(benchmark,)))]
    assert sizes == [(8, 1), (13, 3)]


def test_wrong_benchmarks_are_refused(store: ArtifactStore, corpus: Corpus, tmp_path: Path, benchmark: Path) -> None:
    documents = corpus([QUESTION])
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n[1]\n")
    for config, message in (
        (DecontaminateConfig(), "nothing to look for"),
        (DecontaminateConfig(benchmarks=(tmp_path / "no.jsonl",)), "no such file"),
        (DecontaminateConfig(benchmarks=(bad,)), "bad.jsonl:2.*not a JSON object"),
        (DecontaminateConfig(benchmarks=(benchmark,), benchmark_fields=("text",)), "no field 'text', but question"),
        (
            DecontaminateConfig(
                benchmarks=(benchmark,), min_ngram_words=13, ngram_words=64, benchmark_fields=("choices",)
            ),
            "no text of 13 words",
        ),
    ):
        with pytest.raises(UserError, match=message):
            store.run(DECONTAMINATE, config, [documents])
    with pytest.raises(ValueError, match="min_ngram_words = 20 is more than ngram_words = 13"):
        DecontaminateConfig(min_ngram_words=20)
