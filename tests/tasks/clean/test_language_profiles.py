from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langdetect.lang_detect_exception import LangDetectException

from tasks.clean import language_profiles
from tasks.clean.language_profiles import ProfileDetector, sorted_factory

LANGID = Path(__file__).resolve().parents[4] / "shared" / "data" / "langid"
WORDS = (
    "the", "harbour", "DER", "Hafen", "AbC", "ABc", "é", "ÉÉ", "ß", "мир", "港", "の", "ท่า", "x", " ", "  ", "\n", "1",
    "http://example.com/a", "who@example.com", "@", "e\u0301", "ș", "한국", "[", "Ａ", "Ạ", "العربية", "یک",
)  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join) | st.lists(st.sampled_from(WORDS), max_size=20).map(
    "".join
)


@cache
def factory() -> Any:
    return sorted_factory()


@cache
def ours() -> ProfileDetector:
    return ProfileDetector(factory())


def theirs(text: str) -> tuple[str, float]:
    """What the package says, by its own code."""
    detector = factory().create()
    detector.append(text)
    try:
        found = detector.get_probabilities()
    except LangDetectException:
        return "", 0.0
    return (found[0].lang, found[0].prob) if found else ("", 0.0)


@given(texts)
@example("Hafen мир Ạ العربية")  # ten letters against ten, and one of Latin Extended Additional
@settings(max_examples=150, deadline=None)
def test_answers_are_the_packages_own(text: str) -> None:
    language, probability = theirs(text)
    assert ours().detect(text) == (language, pytest.approx(probability, abs=1e-6))


@given(texts | st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_n_grams_are_the_packages_own(text: str) -> None:
    detector = factory().create()
    detector.append(text)
    detector.cleaning_text()
    names = list(ours()._rows)
    assert [names[row] for row in ours().grams(text)] == detector._extract_ngrams()


def test_the_cache_of_words_is_emptied_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_profiles, "MOST_CACHED_WORDS", 3)
    text = "several words that come again, several words that come again"
    detector = ProfileDetector(factory())
    assert detector.grams(text) == ours().grams(text)
    assert len(detector._words) <= 3


@pytest.mark.skipif(not LANGID.is_dir(), reason="the texts in 75 languages are not here")
def test_answers_on_real_texts_in_many_languages() -> None:
    with gzip.open(LANGID / "sentences.jsonl.gz", "rt", encoding="utf-8") as stream:
        sentences = [json.loads(line)["text"] for line in stream]
    for sentence in random.Random(4).sample(sentences, 150):
        language, probability = theirs(sentence)
        assert ours().detect(sentence) == (language, pytest.approx(probability, abs=1e-6)), sentence
