"""The order of work and of messages in a 1F1B pipeline, as pure functions, and proofs that an order works.

Stage r of p does min(p - r - 1, m) forwards, then one forward and one backward in turn, then the remaining backwards
(Narayanan et al., arXiv 2104.04473). At most p - r micro-batches are alive on a stage. Messages are part of the plan,
so that what is proved here is what is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B"]


@dataclass(frozen=True)
class Action:
    """A forward or backward of one micro-batch."""

    kind: Kind
    micro_batch: int


@dataclass(frozen=True)
class Message:
    """The activation (F) or its gradient (B) of a micro-batch, to or from a neighbouring stage."""

    kind: Kind
    micro_batch: int
    peer: int


@dataclass(frozen=True)
class Transfer:
    """Messages that are posted together; the stage goes on when all have passed."""

    send: Message | None
    receive: Message | None


Plan = list[Action | Transfer]


def one_forward_one_backward(num_stages: int, num_micro_batches: int, stage: int) -> list[Action]:
    """The order of forwards and backwards on one stage."""
    warmup = min(num_stages - stage - 1, num_micro_batches)
    actions = [Action("F", index) for index in range(warmup)]
    for index in range(num_micro_batches - warmup):
        actions += [Action("F", warmup + index), Action("B", index)]
    return actions + [Action("B", index) for index in range(num_micro_batches - warmup, num_micro_batches)]


def plan_messages(actions: Sequence[Action], num_stages: int, stage: int) -> Plan:
    """The same order with the messages between its actions.

    What an action makes is sent after it; what the next one needs is received before it. Both together when they go to
    and come from one neighbour, which does the same at that moment: each sending first would block both.
    """
    plan: Plan = []
    for place, action in enumerate(actions):
        need = _need(action, num_stages, stage)
        made = _made(actions[place - 1], num_stages, stage) if place else None
        if made and need and made.peer == need.peer:
            plan.append(Transfer(made, need))
        else:
            if made:
                plan.append(Transfer(made, None))
            if need:
                plan.append(Transfer(None, need))
        plan.append(action)
    made = _made(actions[-1], num_stages, stage) if actions else None
    return [*plan, Transfer(made, None)] if made else plan


def _need(action: Action, num_stages: int, stage: int) -> Message | None:
    peer = stage - 1 if action.kind == "F" else stage + 1
    return Message(action.kind, action.micro_batch, peer) if 0 <= peer < num_stages else None


def _made(action: Action, num_stages: int, stage: int) -> Message | None:
    peer = stage + 1 if action.kind == "F" else stage - 1
    return Message(action.kind, action.micro_batch, peer) if 0 <= peer < num_stages else None


def stage_plan(num_stages: int, num_micro_batches: int, stage: int) -> Plan:
    """What stage `stage` does in a step, in order."""
    return plan_messages(one_forward_one_backward(num_stages, num_micro_batches, stage), num_stages, stage)


def check_plans(plans: Sequence[Plan], num_micro_batches: int) -> None:
    """Prove that the stages' plans can be executed together.

    Messages have no buffer: a send passes when its receiver has posted the receive, as with NCCL. Raises ValueError
    when a stage leaves out, doubles or misorders work, uses what has not come, keeps more micro-batches alive than 1F1B
    allows, receives something else than what is sent, or when all wait.
    """
    for stage, plan in enumerate(plans):
        _check_stage(plan, len(plans), stage, num_micro_batches)
    places = [0] * len(plans)
    waiting: list[set[tuple[str, Message]]] = [set() for _ in plans]
    while True:
        moved = False
        for stage, plan in enumerate(plans):
            while not waiting[stage] and places[stage] < len(plan):
                item = plan[places[stage]]
                places[stage] += 1
                moved = True
                if isinstance(item, Transfer):
                    waiting[stage] = {("send", item.send)} if item.send else set()
                    waiting[stage] |= {("receive", item.receive)} if item.receive else set()
        for stage in range(len(plans)):
            for direction, message in sorted(waiting[stage], key=str):
                moved |= direction == "send" and _pass(waiting, stage, message)
        if not moved:
            break
    if any(waiting):
        raise ValueError(f"deadlock: stages wait for {[sorted(map(str, messages)) for messages in waiting]}")


def _pass(waiting: list[set[tuple[str, Message]]], sender: int, message: Message) -> bool:
    """Let a message pass if its receiver waits for one from the sender."""
    for direction, wanted in waiting[message.peer]:
        if direction != "receive" or wanted.peer != sender:
            continue
        if (wanted.kind, wanted.micro_batch) != (message.kind, message.micro_batch):
            raise ValueError(f"stage {message.peer} waits for {wanted} and would get {message}")
        waiting[sender].remove(("send", message))
        waiting[message.peer].remove((direction, wanted))
        return True
    return False


def _check_stage(plan: Plan, num_stages: int, stage: int, num_micro_batches: int) -> None:
    received: set[tuple[str, int]] = set()
    done: list[tuple[str, int]] = []
    alive = 0
    for item in plan:
        if isinstance(item, Transfer):
            if item.send and (item.send.kind, item.send.micro_batch) not in done:
                raise ValueError(f"stage {stage} sends {item.send} before it has made it")
            if item.receive:
                received.add((item.receive.kind, item.receive.micro_batch))
            continue
        key = (item.kind, item.micro_batch)
        if _need(item, num_stages, stage) and key not in received:
            raise ValueError(f"stage {stage} does {key} before its input has come")
        if item.kind == "B" and ("F", item.micro_batch) not in done:
            raise ValueError(f"stage {stage} goes back through micro-batch {item.micro_batch} before forward")
        done.append(key)
        alive += 1 if item.kind == "F" else -1
        if alive > num_stages - stage:
            raise ValueError(f"stage {stage} holds {alive} micro-batches, more than {num_stages - stage}")
    if sorted(done) != sorted((kind, index) for kind in "FB" for index in range(num_micro_batches)):
        raise ValueError(f"stage {stage} does not do every micro-batch once forward and once backward")


def num_time_slots(schedules: Sequence[Sequence[Action]]) -> int:
    """How long the stages' orders take when each action takes one slot and messages none; 2 (m + p - 1) for 1F1B."""
    ends: dict[tuple[str, int, int], int] = {}
    places, free = [0] * len(schedules), [0] * len(schedules)
    last = len(schedules) - 1
    while any(place < len(schedule) for place, schedule in zip(places, schedules, strict=True)):
        moved = False
        for stage, schedule in enumerate(schedules):
            if places[stage] == len(schedule):
                continue
            kind, index = schedule[places[stage]].kind, schedule[places[stage]].micro_batch
            if kind == "F":
                before = ("F", stage - 1, index) if stage else None
            else:
                before = ("F", stage, index) if stage == last else ("B", stage + 1, index)
            if before is None or before in ends:
                start = max(free[stage], ends[before] if before else 0)
                free[stage] = ends[kind, stage, index] = start + 1
                places[stage] += 1
                moved = True
        if not moved:
            raise ValueError(f"deadlock: every stage waits, at {places}")
    return max(free)
