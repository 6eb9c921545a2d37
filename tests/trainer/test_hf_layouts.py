"""Row orders of fused query-key-value weights, and joining tensor-parallel parts."""

from __future__ import annotations

import pytest
import torch

from trainer.models.gpt.megatron_layouts import (
    PartKind,
    QkvLayout,
    merge_parts,
    merge_qkv_parts,
    qkv_layout_of_version,
    regroup_qkv,
)

HEADS, HEAD_SIZE, HIDDEN = 4, 3, 5
WHOLE = torch.arange(3 * HEADS * HEAD_SIZE * HIDDEN, dtype=torch.float32).reshape(3, HEADS, HEAD_SIZE, HIDDEN)


def in_layout(layout: QkvLayout, whole: torch.Tensor = WHOLE) -> torch.Tensor:
    """The same weights written out by hand in each order, from [3, head, size, hidden]."""
    order = {
        QkvLayout.THREE_HEAD_SIZE: (0, 1, 2, 3),
        QkvLayout.HEAD_SIZE_THREE: (1, 2, 0, 3),
        QkvLayout.HEAD_THREE_SIZE: (1, 0, 2, 3),
    }[layout]
    return whole.permute(order).reshape(-1, HIDDEN)


@pytest.mark.parametrize("source", list(QkvLayout))
@pytest.mark.parametrize("target", list(QkvLayout))
def test_every_order_becomes_every_other(source: QkvLayout, target: QkvLayout) -> None:
    assert torch.equal(regroup_qkv(in_layout(source), HEADS, source, target), in_layout(target))
    assert torch.equal(regroup_qkv(in_layout(source)[:, 0], HEADS, source, target), in_layout(target)[:, 0])


@pytest.mark.parametrize("layout", list(QkvLayout))
@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_parts_hold_whole_heads_in_every_order(layout: QkvLayout, num_parts: int) -> None:
    step = HEADS // num_parts
    parts = [in_layout(layout, WHOLE[:, start : start + step]) for start in range(0, HEADS, step)]
    wanted = in_layout(QkvLayout.THREE_HEAD_SIZE)
    assert torch.equal(merge_qkv_parts(parts, HEADS, layout, QkvLayout.THREE_HEAD_SIZE), wanted)


def test_laying_version_0_parts_end_to_end_is_wrong() -> None:
    parts = [in_layout(QkvLayout.THREE_HEAD_SIZE, WHOLE[:, start : start + 2]) for start in (0, 2)]
    assert not torch.equal(torch.cat(parts), in_layout(QkvLayout.THREE_HEAD_SIZE))


def test_versions() -> None:
    assert [qkv_layout_of_version(version) for version in (0, 1.0, 2.0, 3.0)] == [
        QkvLayout.THREE_HEAD_SIZE,
        QkvLayout.HEAD_SIZE_THREE,
        QkvLayout.HEAD_THREE_SIZE,
        QkvLayout.HEAD_THREE_SIZE,
    ]
    with pytest.raises(ValueError, match="checkpoint_version 4 is unknown"):
        qkv_layout_of_version(4)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="10 query-key-value rows are not 3 x 2 heads"):
        regroup_qkv(torch.zeros(10, 2), 2, QkvLayout.HEAD_THREE_SIZE, QkvLayout.THREE_HEAD_SIZE)
    with pytest.raises(ValueError, match="4 heads do not divide over 3"):
        parts = [torch.zeros(12, 1)] * 3
        merge_qkv_parts(parts, 4, QkvLayout.HEAD_THREE_SIZE, QkvLayout.THREE_HEAD_SIZE)


def test_columns_rows_and_copies() -> None:
    left, right = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
    assert merge_parts([left, right], PartKind.COLUMN).tolist() == [[1], [2], [3], [4]]
    assert merge_parts([left, right], PartKind.ROW).tolist() == [[1, 3], [2, 4]]
    assert merge_parts([left, left], PartKind.REPLICATED).tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="differs between tensor-parallel ranks 0 and 1"):
        merge_parts([left, right], PartKind.REPLICATED)
