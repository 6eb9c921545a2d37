from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.errors import CorpusError
from trainer.data.splits import parse_split_weights, split_bounds


@pytest.mark.parametrize("text", ["900,50,50", "900/50/50", "900 50 50", "900; 50; 50", "0.9,0.05,0.05", " 18,1,1 "])
def test_ways_to_write_a_split(text: str) -> None:
    assert parse_split_weights(text) == pytest.approx((0.9, 0.05, 0.05))


@pytest.mark.parametrize("text", ["", "0,0,0", "1,-1,1", "a,b", "1,2,3,4", "nan", "inf,1", "1,,1"])
def test_what_is_no_split_is_refused(text: str) -> None:
    with pytest.raises(CorpusError, match="one to three weights"):
        parse_split_weights(text)


@given(
    weights=st.lists(st.floats(0, 1000), min_size=1, max_size=3).filter(lambda values: sum(values) > 0.01),
    num_sequences=st.integers(0, 10**9),
)
def test_splits_cover_everything_once_and_in_order(weights: list[float], num_sequences: int) -> None:
    bounds = split_bounds(",".join(f"{weight:.6f}" for weight in weights), num_sequences)
    assert bounds["train"][0] == 0 and bounds["test"][1] == num_sequences
    assert bounds["train"][1] == bounds["valid"][0] and bounds["valid"][1] == bounds["test"][0]
    assert all(start <= stop for start, stop in bounds.values())
