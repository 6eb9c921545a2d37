"""The next token from logits."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.inference.config import SamplingConfig
from trainer.inference.randomness import uniform
from trainer.inference.sampling import adjust_logits, draw_tokens, next_tokens, token_probabilities

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0, 0.5])


def probabilities(logits: torch.Tensor = LOGITS, **fields: object) -> list[float]:
    return token_probabilities(logits[None], [SamplingConfig(**fields)])[0].tolist()


def kept(logits: torch.Tensor = LOGITS, **fields: object) -> set[int]:
    return {index for index, value in enumerate(probabilities(logits, **fields)) if value > 0}


def test_plain_sampling_is_the_softmax() -> None:
    torch.testing.assert_close(torch.tensor(probabilities()), LOGITS.softmax(0))


def test_temperature_divides_the_logits() -> None:
    torch.testing.assert_close(torch.tensor(probabilities(temperature=0.5)), (LOGITS / 0.5).softmax(0))


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-300, 5e-324])
def test_no_temperature_is_too_low(temperature: float) -> None:
    assert probabilities(temperature=temperature, top_p=0.9) == [0, 1, 0, 0, 0]


def test_temperature_zero_takes_the_first_of_equal_logits() -> None:
    assert probabilities(torch.tensor([1.0, 2.0, 2.0]), temperature=0) == [0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": -0.1}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"stop": ("",)}, "stop"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_settings_without_meaning_are_rejected(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        SamplingConfig(**fields)


def test_top_k_keeps_the_most_likely_and_ties() -> None:
    assert kept(top_k=1) == {1}
    assert kept(top_k=3) == {0, 1, 2}
    assert kept(torch.tensor([1.0, 1.0, 0.0, 2.0]), top_k=2) == {0, 1, 3}


def test_top_k_beyond_the_vocabulary_is_off() -> None:
    assert probabilities(top_k=5) == probabilities(top_k=1000) == probabilities(top_k=0) == probabilities()


def test_top_p_keeps_the_token_that_crosses() -> None:
    # softmax of 3, 2, 1, 0.5, -1 is 0.6148, 0.2262, 0.0832, 0.0505, 0.0113 (and 0.0139 rounding aside)
    assert kept(top_p=0.6) == {1}
    assert kept(top_p=0.7) == {1, 2}
    assert kept(top_p=0.9) == {0, 1, 2}
    assert kept(top_p=1.0) == {0, 1, 2, 3, 4}


def test_top_p_zero_keeps_the_most_likely() -> None:
    assert probabilities(top_p=0) == [0, 1, 0, 0, 0]


def test_min_p_is_a_fraction_of_the_most_likely() -> None:
    assert kept(min_p=0.3) == {1, 2}
    assert kept(min_p=1) == {1}


def test_filters_apply_in_order() -> None:
    # After top-k 2 the two probabilities are 0.731 and 0.269, so 0.7 already is reached by the first.
    assert kept(top_k=2, top_p=0.7) == {1}


def test_rows_have_their_own_settings() -> None:
    rows = [SamplingConfig(temperature=0), SamplingConfig(top_k=2), SamplingConfig(top_p=0.7), SamplingConfig()]
    together = token_probabilities(LOGITS.repeat(4, 1), rows)
    for row, config in zip(together, rows, strict=True):
        assert torch.equal(row, token_probabilities(LOGITS[None], [config])[0])


def test_repetition_penalty_makes_seen_tokens_less_likely_whatever_the_sign() -> None:
    config = SamplingConfig(repetition_penalty=2)
    assert adjust_logits(LOGITS, config, [3], [1]).tolist() == [1, 1.5, 2, -2, 0.5]


def test_presence_penalty_counts_a_generated_token_once_and_no_prompt() -> None:
    config = SamplingConfig(presence_penalty=0.5)
    assert adjust_logits(LOGITS, config, [0], [1, 1, 1]).tolist() == [1, 2.5, 2, -1, 0.5]


def test_logit_bias_forces_and_forbids() -> None:
    config = SamplingConfig(logit_bias={3: 100.0, 1: -100.0})
    assert adjust_logits(LOGITS, config, [], []).tolist() == [1, -97, 2, 99, 0.5]
    with pytest.raises(ValueError, match="token 5 is outside the vocabulary of 5"):
        adjust_logits(LOGITS, SamplingConfig(logit_bias={5: 1.0}), [], [])


def test_penalties_leave_the_model_s_logits_alone() -> None:
    before = LOGITS.clone()
    adjust_logits(LOGITS, SamplingConfig(repetition_penalty=2, presence_penalty=1, logit_bias={0: 1.0}), [1], [2])
    assert torch.equal(LOGITS, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_damaged_logits_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        next_tokens(torch.tensor([[1.0, bad]]), [SamplingConfig()], [0.5])


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    row = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    assert draw_tokens(row, [0.0]).item() == 1
    assert draw_tokens(row, [0.25]).item() == 3
    assert draw_tokens(row, [1 - 2**-53]).item() == 3


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=30),
    st.floats(0, 100),
    st.integers(0, 40),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
)
def test_something_is_always_drawn_and_it_was_kept(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    config = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    row = token_probabilities(torch.tensor([logits]), [config])
    assert row.sum().item() == pytest.approx(1)
    token = draw_tokens(row, [uniform(seed, 0)]).item()
    assert row[0, int(token)] > 0


def test_draws_follow_the_probabilities() -> None:
    wanted = LOGITS.double().softmax(0)
    num_draws = 20_000
    draws = draw_tokens(wanted.repeat(num_draws, 1), [uniform(7, position) for position in range(num_draws)])
    counts = Counter(draws.tolist())
    chi_square = sum((counts[index] - num_draws * p) ** 2 / (num_draws * p) for index, p in enumerate(wanted.tolist()))
    assert chi_square < 18.47  # 4 degrees of freedom, one in a thousand


def test_uniforms_of_neighbouring_seeds_are_unrelated() -> None:
    pairs = torch.tensor([[uniform(seed, position) for position in range(64)] for seed in range(64)])
    assert pairs.min() >= 0
    assert pairs.max() < 1
    assert abs(pairs.mean().item() - 0.5) < 0.02
    correlation = torch.corrcoef(pairs) - torch.eye(64)
    assert correlation.abs().max() < 0.6
    assert len(set(pairs.flatten().tolist())) == 64 * 64
