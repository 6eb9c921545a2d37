"""1F1B for all numbers of stages and micro-batches: work, order, memory, messages that cannot lock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.parallel.schedule import (
    Action,
    Plan,
    Transfer,
    check_plans,
    num_time_slots,
    one_forward_one_backward,
    plan_messages,
    stage_plan,
)

STAGES, MICRO_BATCHES = st.integers(1, 12), st.integers(1, 24)


def plans(num_stages: int, num_micro_batches: int) -> list[Plan]:
    return [stage_plan(num_stages, num_micro_batches, stage) for stage in range(num_stages)]


def written(num_stages: int, num_micro_batches: int, stage: int) -> str:
    return " ".join(f"{a.kind}{a.micro_batch}" for a in one_forward_one_backward(num_stages, num_micro_batches, stage))


@settings(max_examples=150, deadline=None)
@given(STAGES, MICRO_BATCHES)
def test_every_plan_works_without_message_buffers(num_stages: int, num_micro_batches: int) -> None:
    check_plans(plans(num_stages, num_micro_batches), num_micro_batches)


@settings(max_examples=150, deadline=None)
@given(STAGES, MICRO_BATCHES)
def test_the_bubble_is_that_of_the_paper(num_stages: int, num_micro_batches: int) -> None:
    orders = [one_forward_one_backward(num_stages, num_micro_batches, stage) for stage in range(num_stages)]
    assert num_time_slots(orders) == 2 * (num_micro_batches + num_stages - 1)


def test_the_order_of_four_stages_and_eight_micro_batches() -> None:
    assert written(4, 8, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert written(4, 8, 3) == " ".join(f"F{index} B{index}" for index in range(8))
    assert written(4, 2, 0) == "F0 F1 B0 B1"


def test_sending_first_on_both_sides_is_found_to_lock() -> None:
    """What happens when the two messages of a steady step are not posted together."""
    apart: list[Plan] = []
    for plan in plans(2, 4):
        split: Plan = []
        for item in plan:
            if isinstance(item, Transfer) and item.send and item.receive:
                split += [Transfer(item.send, None), Transfer(None, item.receive)]
            else:
                split.append(item)
        apart.append(split)
    with pytest.raises(ValueError, match="deadlock"):
        check_plans(apart, 4)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 8), st.data())
def test_a_plan_with_an_item_missing_is_refused(num_stages: int, num_micro_batches: int, data: st.DataObject) -> None:
    broken = plans(num_stages, num_micro_batches)
    stage = data.draw(st.integers(0, num_stages - 1))
    del broken[stage][data.draw(st.integers(0, len(broken[stage]) - 1))]
    with pytest.raises(ValueError, match="stage"):
        check_plans(broken, num_micro_batches)


def test_each_mistake_has_its_message() -> None:
    def check(stages: list[list[Action]], number: int) -> None:
        check_plans([plan_messages(actions, len(stages), stage) for stage, actions in enumerate(stages)], number)

    forward = [Action("F", 0), Action("F", 1)]
    backward = [Action("B", 0), Action("B", 1)]
    with pytest.raises(ValueError, match="before forward"):
        check([[Action("B", 0), Action("F", 0)]], 1)
    with pytest.raises(ValueError, match="holds 2 micro-batches, more than 1"):
        check([forward + backward], 2)
    with pytest.raises(ValueError, match="once forward and once backward"):
        check([[Action("F", 0), Action("B", 0)]], 2)
    with pytest.raises(ValueError, match="would get"):
        check([forward + backward, [Action("F", 1), Action("B", 1), Action("F", 0), Action("B", 0)]], 2)
    with pytest.raises(ValueError, match="deadlock"):
        num_time_slots([[Action("F", 0), Action("B", 0)], [Action("B", 0), Action("F", 0)]])
