"""Which samples a step reads, on which replica, in which epoch: functions of the step's number and of nothing else.

Positions count samples from the start of training. A resume, or another number of replicas, changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class SampleSource(Protocol):
    """Anything that gives samples, int64 [seq_length + 1], by position."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> npt.NDArray[np.int64]: ...


def positions_of_step(step: int, global_batch_size: int) -> range:
    """Sample positions of step `step` (counted from 1): consecutive over the whole training, whatever the layout."""
    return range((step - 1) * global_batch_size, step * global_batch_size)


def positions_of_rank(positions: Sequence[int], micro_batch_size: int, dp_rank: int, dp_size: int) -> list[list[int]]:
    """The micro-batches of one replica: of each block of micro_batch_size x dp_size positions, its own part."""
    block = micro_batch_size * dp_size
    return [
        list(positions[start + dp_rank * micro_batch_size : start + (dp_rank + 1) * micro_batch_size])
        for start in range(0, len(positions), block)
    ]


class EpochSamples:
    """Epoch after epoch, each with every sample once and in an order of its own.

    A step may cross from one epoch into the next; nothing is left out and nothing starts anew. Only the epoch in use is
    held: its order is made when a position in it is first asked for.
    """

    def __init__(
        self, open_epoch: Callable[[int], SampleSource], num_samples: int, first_epoch: SampleSource | None = None
    ) -> None:
        """`open_epoch(number)` gives the samples of an epoch; all have the same length. `num_samples`: of training."""
        self._open_epoch, self._num_samples = open_epoch, num_samples
        self._number, self._epoch = 0, first_epoch or open_epoch(0)

    @property
    def samples_per_epoch(self) -> int:
        """Samples in each epoch."""
        return len(self._epoch)

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, position: int) -> npt.NDArray[np.int64]:
        """The sample at a position of training."""
        if not 0 <= position < self._num_samples:
            raise IndexError(f"position {position} of {self._num_samples}")
        number, index = divmod(position, self.samples_per_epoch)
        if number != self._number:
            self._number, self._epoch = number, self._open_epoch(number)
        return self._epoch[index]
