"""One optimizer step on this rank: micro-batches through the model, gradients over ranks, the update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.config import TrainConfig
from trainer.metrics import ExitCode, TrainError
from trainer.models.gpt.batch import make_batch
from trainer.models.gpt.model import GPT, Batch
from trainer.models.registry import BUILDERS, SHARDINGS
from trainer.optim.gradients import clip_gradients, gradient_norm, reduce_gradients
from trainer.optim.registry import OPTIMIZERS
from trainer.optim.schedule import learning_rate
from trainer.parallel.mesh import Mesh, all_reduce
from trainer.parallel.pipeline import Pipeline
from trainer.sample_order import SampleSource, positions_of_rank, positions_of_step


@dataclass(frozen=True)
class StepResult:
    """What came of a step, the same on every rank."""

    loss: float
    """Mean over all tokens of the global batch, nats."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    num_tokens: int
    """Tokens that counted in the loss."""
    is_finite: bool
    """False: the step was skipped, parameters are as before."""
    wants_to_stop: bool
    """Some rank was told to end."""


class Stepper:
    """A rank's model, optimizer and pipeline."""

    def __init__(
        self, train: TrainConfig, *, vocab_size: int, eod_token_id: int, mesh: Mesh, device: torch.device
    ) -> None:
        """Builds this rank's part of the model with initial values, and its optimizer."""
        self.train, self.mesh, self.device, self.eod_token_id = train, mesh, device, eod_token_id
        self.vocab_size = vocab_size
        self.model: GPT = BUILDERS[train.model.name](train, vocab_size, mesh, device)
        self.sharding = SHARDINGS[train.model.name]
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = OPTIMIZERS[train.optimizer.name](self.parameters, train.optimizer)
        shape = (train.micro_batch_size, train.seq_length, train.model.hidden_size)
        self.pipeline = Pipeline(mesh, shape, self.model.dtype, device)
        self.num_updates = 0

    def batch(self, dataset: SampleSource, positions: Sequence[int]) -> Batch:
        """The micro-batch of these sample positions."""
        samples = np.stack([dataset[position] for position in positions])
        if (highest := int(samples.max())) >= self.vocab_size:
            # Padding rows of the embedding would take such an id without a word.
            message = (
                f"samples {positions[0]} to {positions[-1]} hold token id {highest}, vocab_size is {self.vocab_size}"
            )
            raise TrainError(message, "Give the vocabulary that the corpus was made with.", ExitCode.CONFIG)
        train = self.train
        return make_batch(
            samples,
            self.eod_token_id,
            self.device,
            reset_position_ids=train.reset_position_ids,
            reset_attention_mask=train.reset_attention_mask,
            eod_mask_loss=train.eod_mask_loss,
        )

    def losses(self, hidden: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the counted token losses (nats) and their number, of a micro-batch on the last stage."""
        return (self.model.token_losses(hidden, batch.labels) * batch.loss_mask).sum(), batch.loss_mask.sum()

    def backward(self, step: int, dataset: SampleSource) -> tuple[float, int]:
        """Gradients of the mean loss over all tokens of the global batch, complete on every rank.

        Returns loss and number of counted tokens, the same on every rank.
        """
        train, mesh = self.train, self.mesh
        positions = positions_of_step(step, train.global_batch_size)
        mine = positions_of_rank(positions, train.micro_batch_size, mesh.dp_rank, train.parallel.data_parallel_size)
        expected = train.global_batch_size * train.seq_length
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train()

        def forward(index: int, inputs: Tensor | None) -> Tensor:
            batch = self.batch(dataset, mine[index])
            self.model.context.step, self.model.context.samples = step, tuple(mine[index])
            hidden = self.model.hidden(batch, inputs)
            if not mesh.is_last_stage:
                return hidden
            loss, count = self.losses(hidden, batch)
            if mesh.tp_rank == 0:
                totals.add_(torch.stack([loss.detach().double(), count.double()]))
            # Divided here by what nearly always is the number of tokens, so that gradients are of their usual size.
            return loss / expected

        if train.parallel.pipeline_parallel_size == 1:
            for index in range(len(mine)):
                forward(index, None).backward()
        else:
            self.pipeline.run(len(mine), forward)
        all_reduce(totals, mesh.world_group)
        loss_sum, num_tokens = totals.tolist()
        reduce_gradients(self.parameters, mesh, expected / max(num_tokens, 1.0))
        return loss_sum / max(num_tokens, 1.0), int(num_tokens)

    def run(self, step: int, dataset: SampleSource, *, stop: bool = False) -> StepResult:
        """One step. `stop` says that this rank was told to end; every rank learns of it."""
        train = self.train
        loss, num_tokens = self.backward(step, dataset)
        norm = float(gradient_norm(self.parameters, self.mesh, self.sharding))
        consumed = step * train.global_batch_size
        rate = learning_rate(train.optimizer, train.schedule, consumed, train.num_samples)
        flags = torch.tensor([float(stop)], device=self.device)
        all_reduce(flags, self.mesh.world_group)
        is_finite = math.isfinite(loss) and math.isfinite(norm)
        if is_finite:
            clip_gradients(self.parameters, norm, train.optimizer.clip_grad)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.num_updates += 1
        return StepResult(loss, norm, rate, num_tokens, is_finite, bool(flags.item()))
