"""Laws of cleaning, duplicates and the shuffle."""

from __future__ import annotations

import json
import random
from pathlib import Path

import ftfy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import adopt
from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig, DedupConfig, ShuffleConfig, ShuffleResources
from tasks.clean.dedup import trait_of, verdicts
from tasks.clean.judge import has_tokens
from tasks.clean.language import detect_language, sample_of
from tasks.clean.minhash import jaccard, rows_per_band, shingles
from tasks.clean.normalize import repair_text
from tasks.clean.stage import CLEAN, DEDUP, SHUFFLE
from tasks.configuration import Resources
from tasks.errors import StageError
from tasks.gpt2_vocabulary import gpt2_tokenizer
from tasks.records import read_rows
from tasks.store import ArtifactStore

ENGLISH = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "
PIECES = [
    "caf\u00c3\u00a9 ",
    "\u201cquoted\u201d ",
    "a &amp; b ",
    "\r\n",
    "\u00a0",
    "tab\t",
    "\ufb01ne ",
    "e\u0301 ",
    "\ud83d",
    "\x00",
    "\x1b[31m",
    "plain ",
    "\u65e5\u672c ",
    "\n",
]


def adopted(store: ArtifactStore, folder: Path, texts: list[str], per_shard: int = 7) -> DocumentShards:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "in.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": str(n), "url": f"http://example.com/{n}", "text": t}) + "\n" for n, t in enumerate(texts)
        )
    )
    shard_size, adopt.DOCUMENTS_PER_SHARD = adopt.DOCUMENTS_PER_SHARD, per_shard
    try:
        return adopt.adopt_documents(store, [path])
    finally:
        adopt.DOCUMENTS_PER_SHARD = shard_size


def ids(store: ArtifactStore, documents: DocumentShards) -> list[str]:
    shards = sorted(store.path_of(documents).glob("*.zst"))
    return [row.document.id for shard in shards for row in read_rows(shard) if row.document]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join))
def test_repair_is_idempotent_and_leaves_no_control_character(text: str) -> None:
    once = repair_text(text, CleanConfig())
    assert repair_text(once, CleanConfig()) == once
    assert not any(ord(character) < 32 and character not in "\t\n" for character in once)
    once.encode()


@settings(deadline=None, max_examples=150)
@given(st.text(st.sampled_from([*map(chr, range(32, 127)), "\t", "\n", "\u00a0"]), max_size=60))
def test_lines_that_are_passed_over_are_those_that_ftfy_leaves_alone(text: str) -> None:
    config = ftfy.TextFixerConfig(unescape_html=True, uncurl_quotes=True, normalization="NFC", explain=False)
    for line in text.split("\n"):
        if "&" not in line:
            assert repair_text(line, CleanConfig()) == line == ftfy.fix_text(line, config)


@pytest.mark.parametrize("minimum", [0, 1, 5, 128])
@settings(deadline=None, max_examples=40)
@given(st.text(max_size=300))
def test_the_shortcuts_of_the_length_rule_are_exact(minimum: int, text: str) -> None:
    text = repair_text(text, CleanConfig())
    assert has_tokens(text, minimum) == (len(gpt2_tokenizer().encode(text).ids) >= minimum)


def test_language_is_a_function_of_the_text_alone() -> None:
    texts = [
        ENGLISH,
        "Der Hafenmeister \u00f6ffnete das Tor bei Tagesanbruch und z\u00e4hlte jedes Boot.",
        "12345",
        "tide table",
    ]
    first = [detect_language(text) for text in texts]
    assert [detect_language(text) for text in reversed(texts)] == first[::-1]
    assert [language for language, _ in first[:3]] == ["en", "de", ""]
    assert len(sample_of(ENGLISH * 1000)) < 2000


def test_clean_counts_each_document_once_and_does_not_depend_on_workers(tmp_path: Path) -> None:
    german = (
        "Der Hafenmeister \u00f6ffnete das Tor bei Tagesanbruch und z\u00e4hlte jedes Boot zweimal, bevor die Flut kam. "
        * 8
    )
    texts = [ENGLISH * 8, german, "short", "caf\u00c3\u00a9 " + ENGLISH * 8, "\x00", ENGLISH * 9]
    made = []
    for workers in (1, 2):
        store = ArtifactStore(tmp_path / f"store{workers}")
        source = adopted(store, tmp_path / str(workers), texts, per_shard=2)
        made.append(store.run(CLEAN, CleanConfig(resources=Resources(workers=workers)), [source]))
    assert made[0].fingerprint == made[1].fingerprint
    report = store.manifest_of(made[1]).report
    assert report is not None and report.num_out == 3
    assert report.dropped == {"empty": 1, "other_language": 1, "too_few_tokens": 1}
    assert report.counts["language:en"] == 3 and report.counts["repaired"] == 2


def test_a_corpus_of_which_nothing_is_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(StageError, match="kept none of 1 documents; dropped: {'too_few_tokens': 1}"):
        store.run(CLEAN, CleanConfig(), [adopted(store, tmp_path / "in", ["short"])])


def corpus(seed: int) -> list[str]:
    """Texts with exact copies, near copies and strangers."""
    draw = random.Random(seed)
    texts: list[str] = []
    for base in range(12):
        words = [f"w{draw.randint(0, 10**6)}" for _ in range(draw.randint(3, 120))]
        for _ in range(draw.randint(1, 4)):
            changed = list(words)
            for _ in range(draw.randint(0, 6)):
                changed[draw.randrange(len(changed))] = f"x{base}"
            texts.append(" ".join(changed))
    draw.shuffle(texts)
    return texts


@pytest.mark.parametrize("seed", range(8))
def test_every_dropped_document_has_a_survivor_and_no_two_survivors_are_alike(seed: int) -> None:
    texts, config = corpus(seed), DedupConfig()
    sets = [shingles(text, config.shingle_words) for text in texts]
    found = list(verdicts((trait_of(text, config) for text in texts), config))
    kept = [number for number, (reason, _) in enumerate(found) if not reason]
    for number, (reason, survivor) in enumerate(found):
        if reason:
            assert survivor in kept and survivor < number
            assert texts[number] == texts[survivor] or jaccard(sets[number], sets[survivor]) >= config.threshold
    for place, first in enumerate(kept):
        for second in kept[place + 1 :]:
            assert jaccard(sets[first], sets[second]) < config.threshold


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.95, 1.0])
def test_bands_find_pairs_at_the_threshold(threshold: float) -> None:
    rows = rows_per_band(threshold, 128)
    assert 1 - (1 - threshold**rows) ** (128 // rows) >= 0.995


def test_jaccard_is_exact() -> None:
    one, two = shingles("a b c d e f g", 5), shingles("b c d e f g h", 5)
    assert len(one) == 3 and jaccard(one, two) == 2 / 4
    assert jaccard(one, one) == 1.0 and jaccard(one, np.zeros(0, np.uint64)) == 0.0


def test_dedup_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    texts = corpus(3)
    made = []
    for workers in (1, 2):
        store = ArtifactStore(tmp_path / f"store{workers}")
        source = adopted(store, tmp_path / str(workers), texts)
        made.append(store.run(DEDUP, DedupConfig(resources=Resources(workers=workers)), [source]))
    assert made[0].fingerprint == made[1].fingerprint


def test_shuffle_is_a_permutation_that_only_the_seed_decides(tmp_path: Path) -> None:
    texts = [ENGLISH * (1 + number % 5) + str(number) for number in range(60)]
    orders = []
    for name, seed, workers, memory in (("a", 1, 1, 1 << 30), ("b", 1, 2, 1 << 20), ("c", 2, 1, 1 << 30)):
        store = ArtifactStore(tmp_path / name)
        config = ShuffleConfig(
            seed=seed, documents_per_shard=25, resources=ShuffleResources(workers=workers, memory_bytes=memory)
        )
        shuffled = store.run(SHUFFLE, config, [adopted(store, tmp_path / f"in-{name}", texts)])
        orders.append((ids(store, shuffled), shuffled.fingerprint))
    assert sorted(orders[0][0], key=int) == [str(number) for number in range(60)]
    assert orders[0] == orders[1] and orders[0][0] != orders[2][0] and orders[0][0] != sorted(orders[0][0], key=int)


def test_shuffle_does_not_depend_on_the_number_of_buckets(tmp_path: Path) -> None:
    texts = [f"{number} " + "x" * 60_000 for number in range(40)]
    found = []
    for memory in (1 << 20, 1 << 30):
        store = ArtifactStore(tmp_path / str(memory))
        config = ShuffleConfig(resources=ShuffleResources(workers=1, memory_bytes=memory))
        found.append(ids(store, store.run(SHUFFLE, config, [adopted(store, tmp_path / f"in{memory}", texts)])))
    assert found[0] == found[1]
