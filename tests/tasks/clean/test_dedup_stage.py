from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.artifacts import DocumentShards
from tasks.clean import candidates, dedup, dedup_stage, minhash
from tasks.clean.config import DedupConfig, DedupResources
from tasks.clean.dedup import DedupReason
from tasks.clean.digests import text_digest
from tasks.clean.shingles import distinct, jaccard, shingle_hashes
from tasks.clean.stage import DEDUP
from tasks.records import Document
from tasks.store import ArtifactStore

Corpus = Callable[..., DocumentShards]
Read = Callable[[DocumentShards], list[Document]]
NEARDUP = Path(__file__).resolve().parents[4] / "shared" / "data" / "neardup"
ONE = DedupResources(workers=1)


def families(seed: int, num_families: int, num_words: int = 60) -> list[str]:
    """Texts with none, few and many words changed, and chains of texts each like the next; shuffled."""
    draw = random.Random(seed)
    texts = []
    for family in range(num_families):
        words = [f"f{family}w{place}" for place in range(num_words)]
        for _ in range(draw.randint(1, 5)):
            changed = list(words)
            for _ in range(draw.choice((0, 1, 1, 2, 4))):
                changed[draw.randrange(num_words)] = f"new{draw.randrange(10**6)}"
            texts.append(" ".join(changed))
        long = [f"f{family}c{place}" for place in range(num_words * 2)]
        texts.extend(" ".join(long[start : start + num_words]) for start in range(0, 12, 3))
    draw.shuffle(texts)
    return texts


@pytest.mark.parametrize("threshold", [0.5, 0.75, 0.9])
@pytest.mark.parametrize("engine", ["installed", "numpy"])
def test_every_copy_has_a_survivor_and_no_two_survivors_are_alike(
    store: ArtifactStore, corpus: Corpus, read: Read, threshold: float, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "numpy":
        monkeypatch.setattr(minhash, "is_installed", lambda package: False)
    texts = families(3, 20)
    made = store.run(DEDUP, DedupConfig(threshold=threshold, resources=ONE), [corpus(texts, 40)])
    hashes, offsets = shingle_hashes(texts, 5)
    sets = [distinct(hashes[offsets[at] : offsets[at + 1]]) for at in range(len(texts))]
    survivors = [int(document.id) for document in read(made)]
    assert survivors == sorted(survivors) and survivors[0] == 0
    for number in range(len(texts)):
        alike = [other for other in survivors if other < number and jaccard(sets[number], sets[other]) >= threshold]
        # A document is dropped exactly when an earlier survivor is similar enough.
        assert (number not in survivors) == bool(alike), number
    report = store.manifest_of(made).report
    assert report is not None
    assert 0 < report.dropped[DedupReason.NEAR] < report.counts["near_candidates"]


@given(st.lists(st.text(st.sampled_from("ab \n\té"), max_size=6), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_equal_digests_are_equal_texts_but_for_blanks(texts: list[str]) -> None:
    digests = [text_digest(text) for text in texts]
    normal = [" ".join(text.split()) for text in texts]
    assert [digests.index(one) for one in digests] == [normal.index(one) for one in normal]


def test_rules_one_after_the_other(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    long = " ".join(f"w{place}" for place in range(80))
    rows = [
        {"id": "first", "url": "http://a/1", "text": long},
        {"id": "same url", "url": "http://a/1#part", "text": "quite another text about nothing at all"},
        {"id": "same text", "url": "http://a/2", "text": long.replace(" ", "  ") + "\n"},
        {"id": "near", "url": "http://a/3", "text": long + " more"},
        {"id": "copy of near", "url": "http://a/4", "text": long + "  more "},
        {"id": "case", "url": "", "text": "Short"},
        {"id": "other case", "url": "", "text": "short"},
        {"id": "accent", "url": "", "text": "e\u0301 x"},
        {"id": "same accent", "url": "", "text": "é x"},
        {"id": "no word", "url": "", "text": "?!"},
        {"id": "other without a word", "url": "", "text": "!!"},
    ]
    documents = corpus(rows, documents_per_shard=3)

    def kept(**settings: object) -> list[str]:
        made = store.run(DEDUP, DedupConfig.model_validate({**settings, "resources": ONE}), [documents])
        return [document.id for document in read(made)]

    assert kept(near=False, exact=False) == [row["id"] for row in rows]
    assert kept(near=False) == [
        "first", "same url", "near", "case", "other case", "accent", "no word", "other without a word",
    ]  # fmt: skip
    assert kept(near=False, exact=False, urls=True) == [row["id"] for row in rows if row["id"] != "same url"]
    # n-grams are lower case, so what differs in case alone is near; texts without a word are alike to none.
    assert kept() == ["first", "same url", "case", "accent", "no word", "other without a word"]
    assert kept(exact=False) == kept()
    made = store.run(DEDUP, DedupConfig(urls=True, resources=ONE), [documents])
    report = store.manifest_of(made).report
    assert report is not None
    assert report.dropped == {DedupReason.URL: 1, DedupReason.EXACT: 3, DedupReason.NEAR: 2}
    # The copy of the near copy is a copy of the survivor: what is named is there.
    assert [example.partition(":")[0] for example in report.examples[DedupReason.EXACT]] == [
        "like line 0", "like line 0", "like line 7",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["lines", "paragraphs"])
def test_repeated_lines_and_paragraphs_are_cut_out(store: ArtifactStore, corpus: Corpus, read: Read, unit: str) -> None:
    gap = "\n" if unit == "lines" else "\n \n\n"
    notice = "All rights of this page are kept by its many owners"
    texts = [
        f"first document has words of its own{gap}{notice}",
        f"second document{gap}{notice}{gap}short line{gap}{notice}  {gap}and its end",
        f"{notice}{gap}{notice.replace(' ', '  ')}",
        f"short line{gap}{notice.upper()}",
        f"third document has words of its own{gap}short line",
    ]
    config = DedupConfig.model_validate({"repeats": unit, "near": False, "resources": ONE})
    documents = corpus(texts, 2)
    made = store.run(DEDUP, config, [documents])
    glue = "\n" if unit == "lines" else "\n\n"
    assert [document.text for document in read(made)] == [
        texts[0], glue.join(["second document", "short line", "and its end"]), texts[3], texts[4]
    ]  # fmt: skip
    report = store.manifest_of(made).report
    assert report is not None
    assert report.dropped == {DedupReason.REPEATS: 1} and report.counts["repeats_cut"] == 4
    assert made.num_text_bytes == sum(len(document.text.encode()) for document in read(made))
    two = config.model_copy(update={"resources": DedupResources(workers=2)})
    assert store.run(DEDUP, two, [documents], refresh=True).fingerprint == made.fingerprint


def test_shards_without_copies_and_without_documents(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    texts = ["one two three four five six", "seven eight nine ten", "?", "!", "one two three four five six"]
    made = store.run(DEDUP, DedupConfig(resources=ONE), [corpus(texts, 1)])
    assert [document.text for document in read(made)] == texts[:4]
    assert len(list(store.path_of(made).glob("*.zst"))) == 5, "an empty shard stands for the file it came from"


def test_same_survivors_for_any_workers_and_memory(
    store: ArtifactStore, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = corpus(families(5, 8), documents_per_shard=20)
    monkeypatch.setattr(dedup_stage, "FEW_KEYS", 0)
    made = [
        store.run(DEDUP, DedupConfig(resources=resources), [documents], refresh=True)
        for resources in (
            DedupResources(workers=1),
            DedupResources(workers=2),
            # Many parts of keys, many ranges of lines.
            DedupResources(workers=1, memory_bytes=1 << 20).model_copy(update={"memory_bytes": 4000}),
        )
    ]
    assert made[0].fingerprint == made[1].fingerprint == made[2].fingerprint


def test_where_rows_are_bad_the_rest_is_right(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    documents = corpus(["one two three", "one two three", "four five six", "seven eight"])
    (shard,) = store.path_of(documents).glob("*.zst")
    good = zstandard.ZstdDecompressor().decompressobj().decompress(shard.read_bytes()).splitlines()
    # A folder that another program wrote: the stage function is given it as it is.
    shard.write_bytes(zstandard.ZstdCompressor().compress(b"\n".join([b"{", good[0], b"", good[1], b"7", *good[2:]])))
    manifest = store.path_of(documents) / "manifest.json"
    record = json.loads(manifest.read_bytes())
    for entry in record["artifact"]["files"]:
        entry["num_bytes"] = shard.stat().st_size
        entry["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(record))
    made = store.run(DEDUP, DedupConfig(resources=ONE), [store.load(store.path_of(documents))])
    assert [document.text for document in read(made)] == ["one two three", "four five six", "seven eight"]
    report = store.manifest_of(made).report
    assert report is not None
    assert report.dropped == {"blank_line": 1, "exact_duplicate": 1, "invalid_json": 1, "not_an_object": 1}


def test_a_crowd_of_alike_pages_is_compared_within_a_limit(
    store: ArtifactStore, corpus: Corpus, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup, "MOST_PER_CROWD", 3)
    frame = [f"frame{place}" for place in range(60)]
    texts = [" ".join([*frame, *(f"d{number}w{place}" for place in range(12))]) for number in range(30)]
    made = store.run(DEDUP, DedupConfig(threshold=0.8, resources=ONE), [corpus(texts)])
    assert len(read(made)) == 30
    report = store.manifest_of(made).report
    assert report is not None
    assert report.counts["near_crowds_full"] > 0
    assert report.counts["near_comparisons"] < 30 * 29 // 2


def test_numbers_of_equal_digests() -> None:
    high = np.array([5, 1, 5, 5, 1, 9], np.uint64)
    low = np.array([1, 1, 1, 2, 1, 9], np.uint64)
    assert candidates.first_of_equals(high, low).tolist() == [-1, -1, 0, -1, 1, -1]
    assert candidates.first_of_equals(high[:0], low[:0]).tolist() == []


@pytest.mark.skipif(not NEARDUP.is_dir(), reason="the near duplicates are not here")
def test_recall_on_real_near_duplicates(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    with gzip.open(NEARDUP / "articles.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    texts = [row["text"] for row in rows]
    documents = corpus([{"id": str(place), "text": text} for place, text in enumerate(texts)])
    hashes, offsets = shingle_hashes(texts, 5)
    sets = [distinct(hashes[offsets[at] : offsets[at + 1]]) for at in range(len(texts))]
    made = store.run(DEDUP, DedupConfig(threshold=0.8, resources=ONE), [documents])
    survivors = {int(document.id) for document in read(made)}
    order = {row["id"]: place for place, row in enumerate(rows)}
    with gzip.open(NEARDUP / "pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        pairs = [json.loads(line) for line in stream]
    alike = [pair for pair in pairs if jaccard(sets[order[pair["a"]]], sets[order[pair["b"]]]) >= 0.8]
    both = [pair for pair in alike if order[pair["a"]] in survivors and order[pair["b"]] in survivors]
    assert len(alike) > 500
    assert len(both) <= 0.002 * len(alike)
    dropped = sorted(set(range(len(texts))) - survivors)
    for number in random.Random(1).sample(dropped, 60):
        assert any(
            jaccard(sets[number], sets[other]) >= 0.8 or texts[number].split() == texts[other].split()
            for other in survivors
            if other < number
        )
