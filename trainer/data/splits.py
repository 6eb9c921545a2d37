"""Which sequences belong to the training, validation and test split."""

from __future__ import annotations

import itertools
import re
from typing import Literal, get_args

from trainer.data.errors import CorpusError

SplitName = Literal["train", "valid", "test"]
SPLIT_NAMES: tuple[SplitName, ...] = get_args(SplitName)


def parse_split_weights(text: str) -> tuple[float, float, float]:
    """`900,50,50` (also with `/`, `;` or spaces) as fractions of train, valid and test; missing ones are 0.

    Raises CorpusError when it holds anything but one to three numbers of 0 or more with a sum above 0.
    """
    parts = re.split(r"\s*[,/;]\s*|\s+", text.strip())
    try:
        weights = [float(part) for part in parts]
    except ValueError:
        weights = []
    if not 1 <= len(weights) <= 3 or any(not 0 <= weight < float("inf") for weight in weights) or not sum(weights) > 0:
        raise CorpusError(
            f"split = {text!r}: one to three weights of 0 or more, not all 0, are needed (training, validation, test). "
            "Write for example 969,30,1."
        )
    weights += [0.0] * (3 - len(weights))
    total = sum(weights)
    return weights[0] / total, weights[1] / total, weights[2] / total


def split_bounds(text: str, num_sequences: int) -> dict[SplitName, tuple[int, int]]:
    """[start, stop) of the sequences of each split; a split may be empty.

    Splits are cut in file order. The borders are the running sums e of the weights (in double precision), rounded
    half to even: split i holds [round(e_i * N), round(e_(i+1) * N)), which is Megatron-LM's rule.
    Raises CorpusError as `parse_split_weights` does.
    """
    borders = [0]
    position = 0.0
    for weight in parse_split_weights(text):
        position += weight
        borders.append(round(position * float(num_sequences)))
    return dict(zip(SPLIT_NAMES, itertools.pairwise(borders), strict=True))
