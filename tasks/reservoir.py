"""Small samples of long sequences: the same items in every run, at next to no cost for those that are not taken."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """`size` items of a sequence of unknown length, each with the same chance.

    Algorithm L of K.-H. Li, Reservoir-Sampling Algorithms of Time Complexity O(n(1+log(N/n))), 1994: it draws how many
    items to pass over, so that most are never looked at.
    """

    def __init__(self, size: int, seed: str) -> None:
        self._size = size
        self._random = random.Random(seed)
        self._taken: list[tuple[int, Item]] = []
        self._num_seen = 0
        self._next = 0
        self._width = 1.0

    def offer(self, amount: int, item_at: Callable[[int], Item]) -> None:
        """`amount` more items of the sequence; `item_at` gives the one at a place among them."""
        first, last = self._num_seen, self._num_seen + amount
        while self._next < last:
            item = (self._next, item_at(self._next - first))
            if len(self._taken) < self._size:
                self._taken.append(item)
            else:
                self._taken[self._random.randrange(self._size)] = item
            self._next += 1
            if len(self._taken) == self._size:
                self._width *= math.exp(math.log(1.0 - self._random.random()) / self._size)
                self._next += int(math.log(1.0 - self._random.random()) / math.log1p(-self._width))
        self._num_seen = last

    @property
    def items(self) -> list[Item]:
        """The sample in the order of the sequence."""
        return [item for _, item in sorted(self._taken, key=lambda taken: taken[0])]
