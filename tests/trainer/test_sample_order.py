"""Positions of a step and of a replica; epochs one after the other."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.sample_order import EpochSamples, positions_of_rank, positions_of_step


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 9))
def test_replicas_share_each_step_whatever_their_number(micro: int, dp: int, accumulation: int, step: int) -> None:
    batch = micro * dp * accumulation
    positions = positions_of_step(step, batch)
    parts = [positions_of_rank(positions, micro, rank, dp) for rank in range(dp)]
    assert all(len(part) == accumulation and all(len(rows) == micro for rows in part) for part in parts)
    assert sorted(itertools.chain(*itertools.chain(*parts))) == list(positions)
    assert positions[0] == (step - 1) * batch and positions[-1] == step * batch - 1


class Shuffled:
    """Five samples in an order that the epoch gives."""

    def __init__(self, epoch: int) -> None:
        self._order = np.random.default_rng(epoch).permutation(5)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        return np.array([self._order[index]])


def test_epochs_follow_each_other_and_can_be_entered_anywhere() -> None:
    opened: list[int] = []

    def open_epoch(number: int) -> Shuffled:
        opened.append(number)
        return Shuffled(number)

    samples = EpochSamples(open_epoch, 17)
    read = [int(samples[position][0]) for position in range(17)]
    assert all(sorted(read[start : start + 5]) == list(range(5)) for start in (0, 5, 10))
    assert read[:5] != read[5:10] and opened == [0, 1, 2, 3] and len(samples) == 17
    resumed = EpochSamples(open_epoch, 17)
    assert [int(resumed[position][0]) for position in range(8, 17)] == read[8:]
    for position in (17, -1):
        with pytest.raises(IndexError, match=f"position {position} of 17"):
            samples[position]
