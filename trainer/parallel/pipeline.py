"""The 1F1B pipeline: its order as a pure function, a proof that the order works, and its execution.

Stage r of p does min(p - r - 1, m) forwards, then one forward and one backward in turn, then the remaining backwards
(Narayanan et al., arXiv 2104.04473). At most p - r micro-batches are alive on a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.mesh import Mesh


@dataclass(frozen=True)
class Action:
    """One piece of work of a stage."""

    kind: Literal["F", "B"]
    micro_batch: int


def one_forward_one_backward(num_stages: int, num_micro_batches: int, stage: int) -> list[Action]:
    """The order of forwards and backwards on one stage."""
    warmup = min(num_stages - stage - 1, num_micro_batches)
    actions = [Action("F", index) for index in range(warmup)]
    for index in range(num_micro_batches - warmup):
        actions += [Action("F", warmup + index), Action("B", index)]
    return actions + [Action("B", index) for index in range(num_micro_batches - warmup, num_micro_batches)]


def check_schedule(schedules: Sequence[Sequence[Action]], num_micro_batches: int) -> int:
    """Prove that the stages' orders can be executed, and return the number of time slots they need.

    Simulates all stages: a forward waits for the stage before, a backward for the stage after and for its own forward.
    Raises ValueError when work is missing or doubled, when every stage waits (a deadlock), or when a stage holds more
    micro-batches than 1F1B allows.
    """
    num_stages = len(schedules)
    everything = {(kind, index) for kind in "FB" for index in range(num_micro_batches)}
    for stage, schedule in enumerate(schedules):
        if len(schedule) != len(everything) or {(a.kind, a.micro_batch) for a in schedule} != everything:
            raise ValueError(f"stage {stage} does not do every micro-batch once forward and once backward")
    done: set[tuple[str, int, int]] = set()
    places = [0] * num_stages
    slots = 0
    while any(place < len(schedule) for place, schedule in zip(places, schedules, strict=True)):
        ready = []
        for stage, schedule in enumerate(schedules):
            if places[stage] == len(schedule):
                continue
            action = schedule[places[stage]]
            if action.kind == "F":
                waits = None if stage == 0 else ("F", stage - 1, action.micro_batch)
            else:
                waits = ("F" if stage == num_stages - 1 else "B", min(stage + 1, num_stages - 1), action.micro_batch)
                if ("F", stage, action.micro_batch) not in done:
                    raise ValueError(f"stage {stage} goes back through micro-batch {action.micro_batch} before forward")
            if waits is None or waits in done:
                ready.append((stage, action))
        if not ready:
            raise ValueError(f"deadlock: every stage waits, at {places}")
        for stage, action in ready:
            done.add((action.kind, stage, action.micro_batch))
            places[stage] += 1
            alive = sum(1 if a.kind == "F" else -1 for a in schedules[stage][: places[stage]])
            if alive > num_stages - stage:
                raise ValueError(f"stage {stage} holds {alive} micro-batches, more than {num_stages - stage}")
        slots += 1
    return slots


class Pipeline:
    """Runs micro-batches through this rank's stage and moves activations and their gradients to its neighbours."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        """`shape` is that of an activation between stages: [micro-batch, sequence, hidden]."""
        self._mesh, self._shape, self._dtype, self._device = mesh, shape, dtype, device

    def run(
        self,
        num_micro_batches: int,
        forward: Callable[[int, Tensor | None], Tensor],
    ) -> None:
        """One step of forwards and backwards.

        `forward(index, inputs)` computes micro-batch `index` (inputs: None on the first stage) and returns the
        activation for the next stage, or, on the last one, the scalar to go back from.
        """
        mesh, stages = self._mesh, self._mesh.parallel.pipeline_parallel_size
        alive: dict[int, tuple[Tensor | None, Tensor]] = {}
        actions = one_forward_one_backward(stages, num_micro_batches, mesh.pp_rank)
        received: dict[tuple[str, int], Tensor] = {}
        for place, action in enumerate(actions):
            index = action.micro_batch
            follower = actions[place + 1] if place + 1 < len(actions) else None
            if action.kind == "F":
                inputs = None if mesh.is_first_stage else self._take(received, "F", index)
                if inputs is not None:
                    inputs.requires_grad_()
                output = forward(index, inputs)
                alive[index] = (inputs, output)
                sent = None if mesh.is_last_stage else output.detach()
                self._exchange(sent, mesh.pp_rank + 1, follower, received)
            else:
                inputs, output = alive.pop(index)
                if mesh.is_last_stage:
                    output.backward()
                else:
                    torch.autograd.backward(output, self._take(received, "B", index))
                self._exchange(None if inputs is None else inputs.grad, mesh.pp_rank - 1, follower, received)

    def _take(self, received: dict[tuple[str, int], Tensor], kind: str, index: int) -> Tensor:
        if (kind, index) not in received:
            self._exchange(None, -1, Action(kind, index), received)  # type: ignore[arg-type]
        return received.pop((kind, index))

    def _exchange(
        self, sent: Tensor | None, target: int, follower: Action | None, received: dict[tuple[str, int], Tensor]
    ) -> None:
        """Send, and in the same batch receive what the next action needs: a send alone could wait for ever.

        What is received ahead is what the neighbour at `target` sends at this moment; anything else is asked for when
        it is needed.
        """
        mesh = self._mesh
        operations = []
        if sent is not None:
            operations.append(dist.P2POp(dist.isend, sent.contiguous(), mesh.stage_rank(target)))
        if follower is not None:
            source = mesh.pp_rank + (-1 if follower.kind == "F" else 1)
            inner = 0 <= source < mesh.parallel.pipeline_parallel_size
            key = (follower.kind, follower.micro_batch)
            paired = sent is None or source == target
            if inner and paired and key not in received:
                buffer = torch.empty(self._shape, dtype=self._dtype, device=self._device)
                received[key] = buffer
                operations.append(dist.P2POp(dist.irecv, buffer, mesh.stage_rank(source)))
        if operations:
            for request in dist.batch_isend_irecv(operations):
                request.wait()

    def forward_only(self, forward: Callable[[Tensor | None], Tensor]) -> Tensor:
        """One micro-batch without gradients (evaluation): receive, compute, send. Returns this stage's output."""
        mesh = self._mesh
        inputs = None
        if not mesh.is_first_stage:
            inputs = torch.empty(self._shape, dtype=self._dtype, device=self._device)
            dist.recv(inputs, mesh.stage_rank(mesh.pp_rank - 1))
        output = forward(inputs)
        if not mesh.is_last_stage:
            dist.send(output.contiguous(), mesh.stage_rank(mesh.pp_rank + 1))
        return output
