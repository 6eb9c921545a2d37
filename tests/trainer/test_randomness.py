"""Dropout as a hash: the same on every device and for every part, fair, and unlike at any two places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.models.randomness import (
    Dropout,
    DropoutContext,
    device_keys,
    keep_mask,
    keep_mask_on_device,
    normal_parameter,
)

WORD = st.integers(0, 2**32 - 1)
CPU = torch.device("cpu")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=3), st.integers(0, 2**31), st.integers(1, 300), WORD)
def test_both_ways_to_make_a_mask_are_one(keys: list[tuple[int, int]], first: int, number: int, threshold: int) -> None:
    ours = keep_mask(keys, first, number, threshold)
    np.testing.assert_array_equal(keep_mask_on_device(device_keys(keys, CPU), first, number, threshold).numpy(), ours)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 200), st.data())
def test_a_part_is_that_part_of_the_whole(number: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, number - 1))
    whole = keep_mask([(1, 2), (3, 4)], 0, number, 2**31)
    np.testing.assert_array_equal(keep_mask([(1, 2), (3, 4)], first, number - first, 2**31), whole[:, first:])


def test_masks_are_pinned() -> None:
    """What was trained can be trained again: these bits must never change."""
    assert keep_mask([(0, 0), (7, 9)], 0, 16, 2**31).astype(int).tolist() == PINNED


PINNED = [[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1]]


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_right_share_is_dropped_and_the_mean_stays(probability: float) -> None:
    dropout = Dropout(DropoutContext(seed=1, step=2, samples=tuple(range(50))), 3, "mlp", probability)
    found = dropout(torch.ones(50, 40, 50))
    share = (found == 0).float().mean().item()
    assert abs(share - probability) < 5 * (probability * (1 - probability) / found.numel()) ** 0.5
    assert torch.allclose(found[found != 0], torch.tensor(1 / (1 - probability)))


def test_neighbours_samples_steps_layers_and_sites_are_unlike() -> None:
    def drawn(seed: int = 1, step: int = 1, sample: int = 0, layer: int = 0, site: str = "attn") -> torch.Tensor:
        context = DropoutContext(seed, step, (sample,))
        return Dropout(context, layer, site, 0.5)(torch.ones(1, 20_000))[0] / 2

    base = drawn()
    others = [drawn(seed=2), drawn(step=2), drawn(sample=1), drawn(layer=1), drawn(site="mlp"), base.roll(1)]
    others += [base.roll(shift) for shift in (2, 16, 128, 4096)]
    for other in others:
        # Two fair coins agree half of the time; five standard deviations are 0.018.
        assert abs((base == other).float().mean().item() - 0.5) < 0.018


def test_no_samples_means_no_dropout() -> None:
    x = torch.ones(2, 3)
    assert Dropout(DropoutContext(), 0, "attn", 0.5)(x) is x
    assert Dropout(DropoutContext(samples=(1, 2)), 0, "attn", 0.0)(x) is x


def test_initial_weights_belong_to_their_name() -> None:
    ours = normal_parameter(1, "h.0.attn.qkv.weight", (200, 50), 0.02)
    assert torch.equal(ours, normal_parameter(1, "h.0.attn.qkv.weight", (200, 50), 0.02))
    assert not torch.equal(ours, normal_parameter(2, "h.0.attn.qkv.weight", (200, 50), 0.02))
    assert not torch.equal(ours, normal_parameter(1, "h.1.attn.qkv.weight", (200, 50), 0.02))
    assert abs(ours.std().item() - 0.02) < 0.001 and abs(ours.mean().item()) < 0.001
