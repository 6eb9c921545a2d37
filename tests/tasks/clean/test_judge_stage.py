from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig, JudgeConfig, QualityConfig
from tasks.clean.stage import CLEAN, JUDGE
from tasks.configuration import Resources
from tasks.errors import UserError
from tasks.progress import SilentProgress
from tasks.records import Document
from tasks.store import ArtifactStore

Corpus = Callable[..., DocumentShards]
Read = Callable[[DocumentShards], list[Document]]
ENGLISH = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "
# Rules about repetition are off: the texts are one sentence again and again.
OFF = tuple(f"gopher_{name}" for name in ("top_2_gram", "top_3_gram", "top_4_gram")) + tuple(
    f"gopher_repeated_{n}_grams" for n in range(5, 11)
)


def cleaning(few_words: float, keep_dropped: bool, workers: int = 1) -> CleanConfig:
    return CleanConfig(
        min_tokens=4,
        quality=QualityConfig(presets=("gopher",), thresholds={"gopher_few_words": few_words}, off=OFF),
        keep_dropped=keep_dropped,
        resources=Resources(workers=workers),
    )


def judging(few_words: float) -> JudgeConfig:
    quality = QualityConfig(presets=("gopher",), thresholds={"gopher_few_words": few_words}, off=OFF)
    return JudgeConfig(quality=quality, resources=Resources(workers=1))


@pytest.fixture
def documents(corpus: Corpus) -> DocumentShards:
    # 17 to 136 words, a German one and one that is too short between them.
    rows = [ENGLISH * number for number in (8, 1, 5, 3, 7, 2, 6, 4)]
    rows[3:3] = ["Der Hafenmeister öffnete das Tor bei Tagesanbruch und zählte jedes Boot zweimal. ", "ok"]
    return corpus(rows, documents_per_shard=4)


@pytest.mark.parametrize("few_words", [20, 60, 100])
def test_judging_again_is_cleaning_again(
    store: ArtifactStore, documents: DocumentShards, read: Read, few_words: float
) -> None:
    cleaned = store.run(CLEAN, cleaning(60, keep_dropped=True), [documents])
    judged = store.run(JUDGE, judging(few_words), [cleaned])
    anew = store.run(CLEAN, cleaning(few_words, keep_dropped=False), [documents])
    assert [document.to_json() for document in read(judged)] == [document.to_json() for document in read(anew)]
    report = store.manifest_of(judged).report
    assert report is not None and report.num_in == 8
    assert report.counts.get("brought_back", 0) == (2 if few_words == 20 else 0)


def test_without_the_dropped_ones_rules_only_become_stricter(
    store: ArtifactStore, documents: DocumentShards, read: Read
) -> None:
    cleaned = store.run(CLEAN, cleaning(60, keep_dropped=False), [documents])
    progress = SilentProgress()
    judged = store.run(JUDGE, judging(20), [cleaned], progress)
    assert [document.text for document in read(judged)] == [document.text for document in read(cleaned)]
    assert "keep_dropped" in progress.notes[0]
    assert len(read(store.run(JUDGE, judging(100), [cleaned]))) == 3


def test_what_cannot_be_judged_is_refused(store: ArtifactStore, documents: DocumentShards) -> None:
    with pytest.raises(UserError, match=r"no kept numbers.*quality\.presets"):
        store.run(JUDGE, judging(20), [documents])
    cleaned = store.run(CLEAN, cleaning(20, keep_dropped=False), [documents])
    with pytest.raises(UserError, match=r"'c4_sentences': its number sentences was not taken"):
        store.run(JUDGE, JudgeConfig(quality=QualityConfig(presets=("c4",))), [cleaned])


def test_the_report_is_the_same_for_any_number_of_workers(store: ArtifactStore, documents: DocumentShards) -> None:
    made = [
        store.run(CLEAN, cleaning(60, keep_dropped=True, workers=workers), [documents], refresh=True)
        for workers in (1, 2)
    ]
    assert made[0].fingerprint == made[1].fingerprint
    report = json.loads((store.path_of(made[0]) / "report.json").read_text(encoding="utf-8"))
    assert report["num_in"] == 10 == report["num_out"] + sum(report["dropped"].values())
    assert report["dropped"] == {"gopher_few_words": 3, "other_language": 1, "too_few_tokens": 1}
    assert report["languages"] == {"before": {"en": 8, "de": 1, "none": 1}, "after": {"en": 5}}
    assert sum(report["distributions"]["characters"]["before"].values()) == 10
    assert sum(report["distributions"]["words"]["after"].values()) == 5
    (few,) = [rule for rule in report["rules"] if rule["name"] == "gopher_few_words"]
    assert (few["failed"], few["dropped"], few["threshold"]) == (3, 3, 60)
    assert "GOPHER" in few["source"]
    assert report["hosts"] == [{"host": "example.com", "before": 10, "after": 5}]
    assert {reason: len(found) for reason, found in report["examples"].items()} == {**report["dropped"], "kept": 5}
    example = report["examples"]["gopher_few_words"][0]
    assert example["number"] < example["threshold"] == 60 and example["line"] >= 1


def test_changes_are_counted(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    rows = [f"{ENGLISH}\nHome\n{ENGLISH} Write to a@example.com &amp; b@example.com.", ENGLISH]
    config = CleanConfig(min_tokens=4, mask=("email",), quality=QualityConfig(presets=("boilerplate",)))
    made = store.run(CLEAN, config, [corpus(rows)])
    assert [document.text.count("<EMAIL>") for document in read(made)] == [2, 0]
    report = store.manifest_of(made).report
    assert report is not None
    assert report.counts == {
        "language:en": 2,
        "line_of_boilerplate": 1,
        "masked:email": 2,
        "repaired": 1,
        "repaired:entities": 1,
    }
