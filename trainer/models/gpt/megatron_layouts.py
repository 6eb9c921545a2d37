"""The row orders of fused query-key-value weights, and how tensor-parallel parts become one tensor.

Three orders are in use, for n heads of size hn (Megatron-LM checkpoint versions; the version is a key of the file):

    [3, n, hn]   version 0 (no key), and Hugging Face GPT-2
    [n, hn, 3]   version 1.0
    [n, 3, hn]   version 2.0 and 3.0, and this project: a slice of rows is whole heads with their q, k and v
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor


class QkvLayout(StrEnum):
    """Order of the rows of a fused query-key-value weight or bias, outermost first."""

    THREE_HEAD_SIZE = "[3, head, head_size]"
    HEAD_SIZE_THREE = "[head, head_size, 3]"
    HEAD_THREE_SIZE = "[head, 3, head_size]"


_AXES = {
    QkvLayout.THREE_HEAD_SIZE: "3hs",
    QkvLayout.HEAD_SIZE_THREE: "hs3",
    QkvLayout.HEAD_THREE_SIZE: "h3s",
}


def qkv_layout_of_version(version: float) -> QkvLayout:
    """The row order of a Megatron-LM checkpoint version (0, 1.0, 2.0 or 3.0). Raises ValueError for another one."""
    if version == 0:
        return QkvLayout.THREE_HEAD_SIZE
    if version == 1:
        return QkvLayout.HEAD_SIZE_THREE
    if version in (2, 3):
        return QkvLayout.HEAD_THREE_SIZE
    raise ValueError(f"checkpoint_version {version} is unknown; known are 0, 1.0, 2.0 and 3.0")


def regroup_qkv(rows: Tensor, num_heads: int, source: QkvLayout, target: QkvLayout) -> Tensor:
    """`rows` [3 * num_heads * head_size, ...] reordered from one layout to another: weight and bias alike."""
    if rows.shape[0] % (3 * num_heads):
        raise ValueError(f"{rows.shape[0]} query-key-value rows are not 3 x {num_heads} heads of one size")
    sizes = {"3": 3, "h": num_heads, "s": rows.shape[0] // (3 * num_heads)}
    before, after = _AXES[source], _AXES[target]
    rest = rows.shape[1:]
    split = rows.reshape(*(sizes[axis] for axis in before), *rest)
    order = [before.index(axis) for axis in after] + list(range(3, 3 + len(rest)))
    return split.permute(order).reshape(rows.shape).contiguous()


class PartKind(StrEnum):
    """How a tensor is cut over tensor-parallel ranks."""

    COLUMN = "column"
    """Output rows (dimension 0): column-parallel weights [out, in] and biases, word embedding, output head."""
    ROW = "row"
    """Inputs (dimension 1): row-parallel weights [out, in]."""
    REPLICATED = "replicated"
    """Whole on every rank: layer norms, position embedding, biases of row-parallel layers."""


def merge_parts(parts: Sequence[Tensor], kind: PartKind) -> Tensor:
    """The whole tensor from its parts in rank order. Raises ValueError when replicated copies differ."""
    if kind is PartKind.COLUMN:
        return torch.cat(list(parts), dim=0)
    if kind is PartKind.ROW:
        return torch.cat(list(parts), dim=1)
    for rank, part in enumerate(parts[1:], start=1):
        if not torch.equal(part, parts[0]):
            raise ValueError(f"a replicated tensor differs between tensor-parallel ranks 0 and {rank}")
    return parts[0].clone()


def merge_qkv_parts(parts: Sequence[Tensor], num_heads: int, source: QkvLayout, target: QkvLayout) -> Tensor:
    """The whole query-key-value tensor in `target` order from the parts of ranks that each hold whole heads.

    `num_heads` counts the heads of all parts together. Every part is regrouped by itself: in the order [3, head, size]
    a rank holds its heads' queries, keys and values, and parts laid end to end would mix them.
    """
    if num_heads % len(parts):
        raise ValueError(f"{num_heads} heads do not divide over {len(parts)} tensor-parallel parts")
    by_head = QkvLayout.HEAD_THREE_SIZE
    regrouped = [regroup_qkv(part, num_heads // len(parts), source, by_head) for part in parts]
    return regroup_qkv(torch.cat(regrouped, dim=0), num_heads, by_head, target)
