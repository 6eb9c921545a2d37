"""Execution of a pipeline's plan: micro-batches through this rank's stage, messages to its neighbours."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.mesh import Mesh
from trainer.parallel.schedule import Action, Message, Transfer, stage_plan


class Pipeline:
    """Runs micro-batches through this rank's stage and moves activations and their gradients to its neighbours."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        """`shape` is that of an activation between stages: [micro-batch, sequence, hidden]."""
        self._mesh, self._shape, self._dtype, self._device = mesh, shape, dtype, device

    def run(self, num_micro_batches: int, forward: Callable[[int, Tensor | None], Tensor]) -> None:
        """One step of forwards and backwards.

        `forward(index, inputs)` computes micro-batch `index` (inputs: None on the first stage) and returns the
        activation for the next stage, or, on the last one, the scalar to go back from.
        """
        mesh = self._mesh
        inbox: dict[tuple[str, int], Tensor] = {}
        outbox: dict[tuple[str, int], Tensor] = {}
        alive: dict[int, tuple[Tensor | None, Tensor]] = {}
        for item in stage_plan(mesh.parallel.pipeline_parallel_size, num_micro_batches, mesh.pp_rank):
            if isinstance(item, Transfer):
                self._transfer(item, inbox, outbox)
            else:
                self._act(item, forward, inbox, outbox, alive)

    def _act(
        self,
        action: Action,
        forward: Callable[[int, Tensor | None], Tensor],
        inbox: dict[tuple[str, int], Tensor],
        outbox: dict[tuple[str, int], Tensor],
        alive: dict[int, tuple[Tensor | None, Tensor]],
    ) -> None:
        mesh, index = self._mesh, action.micro_batch
        if action.kind == "F":
            inputs = None if mesh.is_first_stage else inbox.pop(("F", index)).requires_grad_()
            output = forward(index, inputs)
            alive[index] = (inputs, output)
            if not mesh.is_last_stage:
                outbox["F", index] = output.detach()
            return
        inputs, output = alive.pop(index)
        if mesh.is_last_stage:
            output.backward()
        else:
            torch.autograd.backward(output, inbox.pop(("B", index)))
        if inputs is not None:
            assert inputs.grad is not None, "a stage's output depends on its input"
            outbox["B", index] = inputs.grad

    def _transfer(
        self, transfer: Transfer, inbox: dict[tuple[str, int], Tensor], outbox: dict[tuple[str, int], Tensor]
    ) -> None:
        operations = []
        if transfer.send:
            sent = outbox.pop((transfer.send.kind, transfer.send.micro_batch)).contiguous()
            operations.append(self._operation(dist.isend, sent, transfer.send))
        if transfer.receive:
            buffer = self._buffer()
            inbox[transfer.receive.kind, transfer.receive.micro_batch] = buffer
            operations.append(self._operation(dist.irecv, buffer, transfer.receive))
        for request in dist.batch_isend_irecv(operations):
            request.wait()

    def _operation(self, function: Callable[..., object], tensor: Tensor, message: Message) -> dist.P2POp:
        return dist.P2POp(function, tensor, self._mesh.stage_rank(message.peer), group=self._mesh.pp_group)

    def _buffer(self) -> Tensor:
        return torch.empty(self._shape, dtype=self._dtype, device=self._device)

    def forward_only(self, forward: Callable[[Tensor | None], Tensor]) -> Tensor:
        """One micro-batch without gradients (evaluation): receive, compute, send. Returns this stage's output."""
        mesh = self._mesh
        inputs = None
        if not mesh.is_first_stage:
            inputs = self._buffer()
            dist.recv(inputs, mesh.stage_rank(mesh.pp_rank - 1), group=mesh.pp_group)
        output = forward(inputs)
        if not mesh.is_last_stage:
            dist.send(output.contiguous(), mesh.stage_rank(mesh.pp_rank + 1), group=mesh.pp_group)
        return output
