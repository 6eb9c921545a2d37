from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig
from tasks.clean.judge import CleanReason
from tasks.clean.stage import CLEAN
from tasks.configuration import Resources
from tasks.errors import StageError
from tasks.records import Document
from tasks.store import ArtifactStore

Read = Callable[[DocumentShards], list[Document]]
ENGLISH = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "
GERMAN = "Der Hafenmeister öffnete das Tor bei Tagesanbruch und zählte jedes Boot zweimal, bevor die Flut kam. "


def test_every_document_is_kept_or_has_one_reason(
    store: ArtifactStore, corpus: Callable[..., DocumentShards], read: Read
) -> None:
    rows = [
        {"id": "kept", "url": "u", "text": ENGLISH * 3 + "caf\u00c3\u00a9 &amp; bar", "title": "T", "n": [1, None]},
        {"id": "short", "text": "Hello"},
        {"id": "short and foreign", "text": "kurz"},
        {"id": "foreign", "text": GERMAN * 3},
        {"id": "numbers", "text": "12345 " * 40},
        {"id": "blank", "text": " \x00\n\ufeff "},
    ]
    made = store.run(CLEAN, CleanConfig(min_tokens=16), [corpus(rows)])
    (document,) = read(made)
    assert document.text.endswith("café & bar")
    assert document.extra == {
        "title": "T",
        "n": [1, None],
        "language": "en",
        "language_score": document.extra["language_score"],
    }
    assert document.extra["language_score"] > 0.9
    report = store.manifest_of(made).report
    assert report is not None
    assert (report.num_in, report.num_out) == (6, 1)
    assert report.dropped == {
        CleanReason.TOO_FEW_TOKENS: 2,
        CleanReason.OTHER_LANGUAGE: 1,
        CleanReason.UNKNOWN_LANGUAGE: 1,
        CleanReason.EMPTY: 1,
    }
    assert report.counts == {
        "language:de": 1,
        "language:en": 1,
        "repaired": 2,
        "repaired:controls": 1,
        "repaired:encoding": 1,
        "repaired:entities": 1,
    }
    assert report.examples[CleanReason.OTHER_LANGUAGE][0].endswith(GERMAN[:80])
    assert made.num_text_bytes == len(document.text.encode())


def test_unsure_answers_and_any_language(
    store: ArtifactStore, corpus: Callable[..., DocumentShards], read: Read
) -> None:
    documents = corpus([ENGLISH * 4, (ENGLISH + GERMAN) * 6, GERMAN * 4])
    every = store.run(CLEAN, CleanConfig(min_tokens=8, languages=()), [documents])
    assert len(read(every)) == 3
    strict = CleanConfig(min_tokens=8, languages=("de", "en"), min_language_probability=1)
    made = store.manifest_of(store.run(CLEAN, strict.model_copy(update={"min_language_probability": 0.9}), [documents]))
    assert made.report is not None
    assert made.report.num_out == 2
    assert made.report.dropped == {CleanReason.UNSURE_LANGUAGE: 1}


def test_same_bytes_for_one_worker_and_two(corpus: Callable[..., DocumentShards], store: ArtifactStore) -> None:
    documents = corpus([f"{number} {ENGLISH} &amp;" * 3 for number in range(12)], documents_per_shard=3)
    made = [
        store.run(CLEAN, CleanConfig(min_tokens=8, resources=Resources(workers=workers)), [documents], refresh=True)
        for workers in (1, 2)
    ]
    assert made[0].fingerprint == made[1].fingerprint
    names = [entry.name for entry in made[0].files]
    assert names == [*(f"documents-{number:05d}.jsonl.zst" for number in range(4)), "report.json"]


def test_nothing_left_is_no_artifact(corpus: Callable[..., DocumentShards], store: ArtifactStore) -> None:
    with pytest.raises(StageError, match="clean kept none of 2 documents: 2 too_few_tokens"):
        store.run(CLEAN, CleanConfig(), [corpus(["a", "b"])])
