"""Loss on held-out samples: each counted once, on any number of ranks, without touching the training state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.parallel.mesh import all_reduce
from trainer.sample_order import SampleSource
from trainer.step import Stepper


@dataclass(frozen=True)
class Evaluation:
    """The result, the same on every rank."""

    loss: float
    """Mean over all counted tokens, nats."""
    num_samples: int
    num_tokens: int


def evaluate(stepper: Stepper, dataset: SampleSource, num_samples: int) -> Evaluation:
    """Mean token loss over the first `num_samples` samples.

    Replicas take samples in turn and may take different numbers of them: they meet once, at the end. The micro-batch is
    filled up with a repeated sample that does not count, since stages exchange activations of one shape.
    """
    mesh, train = stepper.mesh, stepper.train
    size, replicas = train.micro_batch_size, train.parallel.data_parallel_size
    number = min(num_samples, len(dataset))
    totals = torch.zeros(2, dtype=torch.float64, device=stepper.device)
    model = stepper.model
    model.eval()
    model.context.begin(0, (), stepper.device)
    with torch.no_grad():
        for start in range(mesh.dp_rank * size, number, size * replicas):
            positions = list(range(start, min(start + size, number)))
            batch = stepper.batch(dataset, positions + positions[-1:] * (size - len(positions)))
            batch.loss_mask[len(positions) :] = 0

            def forward(inputs: Tensor | None, batch: object = batch) -> Tensor:
                return model.hidden(batch, inputs)  # type: ignore[arg-type]

            hidden = forward(None) if mesh.pp_group is None else stepper.pipeline.forward_only(forward)
            if mesh.is_last_stage:
                loss, count = stepper.losses(hidden, batch)
                if mesh.tp_rank == 0:
                    totals += torch.stack([loss.double(), count.double()])
    model.train()
    all_reduce(totals, mesh.world_group)
    loss_sum, num_tokens = totals.tolist()
    return Evaluation(loss_sum / max(num_tokens, 1.0), number, int(num_tokens))
