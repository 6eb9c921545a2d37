from __future__ import annotations

import numpy as np
import pytest

from tasks.clean import minhash
from tasks.clean.minhash import band_keys, numpy_signatures, recall, rows_per_band, signatures
from tasks.clean.shingles import shingle_hashes

ENGINES = {"installed": signatures, "numpy": numpy_signatures}


@pytest.mark.parametrize("threshold", [0.5, 0.75, 0.8, 0.9, 1.0])
def test_bands_find_a_pair_at_the_threshold_almost_surely(threshold: float) -> None:
    rows = rows_per_band(threshold, 128)
    assert recall(threshold, rows, 128) >= 0.995
    assert rows == 128 or recall(threshold, rows + 1, 128) < 0.995, "with more rows there are fewer false candidates"


def test_too_few_hashes_for_a_low_threshold_make_the_most_bands() -> None:
    assert rows_per_band(0.05, 8) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_signatures_agree_as_often_as_sets_overlap(engine: str) -> None:
    pairs, shared = 60, 60
    texts = []
    for pair in range(pairs):
        words = [f"p{pair}w{place}" for place in range(100)]
        texts += [" ".join(words), " ".join([*words[:shared], *(f"q{pair}w{place}" for place in range(40))])]
    hashes, offsets = shingle_hashes(texts, 1)
    values = ENGINES[engine](hashes, offsets, 7, 128)
    agreed = float((values[0::2] == values[1::2]).mean())
    # Jaccard similarity 60 / 140; the mean of 7,680 draws is within .03 of it but once in a hundred thousand seeds.
    assert agreed == pytest.approx(shared / 140, abs=0.03)


@pytest.mark.parametrize("engine", ENGINES)
def test_signatures_stay_with_their_documents(engine: str) -> None:
    texts = ["", "a b c d e f", "?", "g h i j k", ""]
    values = ENGINES[engine](*shingle_hashes(texts, 2), 7, 16)
    for place in (1, 3):
        (alone,) = ENGINES[engine](*shingle_hashes([texts[place]], 2), 7, 16)
        assert np.array_equal(values[place], alone)
    assert values.shape == (5, 16)


def test_band_keys_say_which_rows_are_equal() -> None:
    values = np.arange(24, dtype=np.uint32).reshape(3, 8)
    values[2, :4] = values[0, :4]
    keys = band_keys(values, 4)
    assert keys.shape == (2, 3)
    assert keys[0, 0] == keys[0, 2] != keys[0, 1]
    assert len(set(keys[1].tolist())) == 3


def test_numpy_takes_over_where_rensa_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "is_installed", lambda package: False)
    given = shingle_hashes(["a b c d e f"], 2)
    assert np.array_equal(signatures(*given, 7, 16), numpy_signatures(*given, 7, 16))
