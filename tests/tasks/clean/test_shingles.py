from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections.abc import Hashable
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.clean import shingles
from tasks.clean.shingles import distinct, jaccard, shingle_hashes
from tasks.clean.word_classes import character_classes

ROOT = Path(__file__).resolve().parents[3]
WORDS = (
    "the",
    "The",
    "harbour",
    "a",
    "b",
    "ab",
    "x_1",
    "42",
    "é",
    "naïve",
    "中文",
    "港",
    "कार्य",
    "ไทย",
    "-",
    ".",
    "\n",
    "'",
)
texts = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.text(max_size=30)


def slow_shingles(text: str, size: int) -> set[Hashable]:
    """What the hashes stand for, without numpy: tuples of words."""
    words: list[str] = []
    classes = character_classes()
    follows = False
    for char in unicodedata.normalize("NFC", text):
        kind = classes[min(ord(char), len(classes) - 1)]
        if len(char.lower().encode("utf-8", "surrogatepass")) == len(char.encode("utf-8", "surrogatepass")):
            char = char.lower()
        if kind == 1 and follows:
            words[-1] += char
        elif kind:
            words.append(char)
        follows = kind == 1
    size = min(size, len(words))
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)} if words else set()


def sets_of(many: list[str], size: int) -> list[shingles.Hashes]:
    hashes, offsets = shingle_hashes(many, size)
    return [distinct(hashes[offsets[at] : offsets[at + 1]]) for at in range(len(many))]


@given(st.lists(texts, min_size=1, max_size=6), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_hashes_stand_for_word_n_grams(many: list[str], size: int) -> None:
    found = sets_of(many, size)
    true = [slow_shingles(text, size) for text in many]
    assert [len(one) for one in found] == [len(one) for one in true]
    for first in range(len(many)):
        for second in range(first + 1):
            union = len(true[first] | true[second])
            wanted = len(true[first] & true[second]) / union if union else 0.0
            assert jaccard(found[first], found[second]) == wanted


@given(st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_document_has_the_same_hashes_in_any_company(many: list[str]) -> None:
    together = sets_of(many, 5)
    alone = [sets_of([text], 5)[0] for text in many]
    assert all(np.array_equal(one, other) for one, other in zip(together, alone, strict=True))


def test_plain_text_is_cut_as_the_pattern_for_words_cuts_it() -> None:
    text = "It's 5 o'clock; snake_case (and) x--y.\n\tEND"
    assert slow_shingles(text, 1) == {(word,) for word in re.findall(r"\w+", text.lower())}


def test_short_texts() -> None:
    few, same, other, none = sets_of(["one two", "One  two!", "two one", "?!"], 5)
    assert len(few) == 1 and np.array_equal(few, same)
    assert not np.array_equal(few, other)
    assert len(none) == 0 and jaccard(none, none) == 0.0
    hashes, offsets = shingle_hashes([], 5)
    assert (len(hashes), offsets.tolist()) == (0, [0])


def test_scripts_without_blanks_are_cut_by_character() -> None:
    assert len(sets_of(["潮水回落之前把每条船数了两遍"], 5)[0]) == 10


def test_long_words_and_letter_case_in_any_script() -> None:
    word = "abcdefgh" * 5
    sets = sets_of(
        [word, word.upper(), word[:-1], word + "x", "ÉÇÑ ДОМ ΑΒΓ 𐐀", "éçñ дом αβγ 𐐨", "éçñ—дом αβγ\u00a0𐐨"], 4
    )
    assert np.array_equal(sets[0], sets[1])
    assert len({one.tobytes() for one in sets[:4]}) == 3
    assert np.array_equal(sets[4], sets[5]) and np.array_equal(sets[5], sets[6])


def test_hashes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tasks.clean.shingles import shingle_hashes; print(shingle_hashes(['a b c d e f', 'é ü'], 5)[0].tolist())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1
