"""One optimizer step on this rank: micro-batches through the model, gradients over ranks, the update."""

from __future__ import annotations

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
from trainer.optim.gradients import gradient_norm, guarded_step, reduce_gradients
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
        self._ahead: tuple[list[int], Batch] | None = None
        """A micro-batch that was made before its turn, and its positions."""

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
        loss_sum, num_tokens, _ = self.accumulate(step, dataset).tolist()
        return loss_sum / max(num_tokens, 1.0), int(num_tokens)

    def accumulate(self, step: int, dataset: SampleSource, *, stop: bool = False) -> Tensor:
        """`backward` without waiting for the device: float64 [sum of losses, counted tokens, ranks told to stop]."""
        train, mesh = self.train, self.mesh
        mine = self._positions(step)
        expected = train.global_batch_size * train.seq_length
        totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        if stop:
            totals[2] = 1.0
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train()

        def forward(index: int, inputs: Tensor | None) -> Tensor:
            batch = self._take(dataset, mine[index])
            self.model.context.begin(step, tuple(mine[index]), self.device)
            hidden = self.model.hidden(batch, inputs)
            if not mesh.is_last_stage:
                return hidden
            loss, count = self.losses(hidden, batch)
            if mesh.tp_rank == 0:
                totals[:2].add_(torch.stack([loss.detach().double(), count.double()]))
            # Divided here by what nearly always is the number of tokens, so that gradients are of their usual size.
            return loss / expected

        if train.parallel.pipeline_parallel_size == 1:
            for index in range(len(mine)):
                forward(index, None).backward()
        else:
            self.pipeline.run(len(mine), forward)
        all_reduce(totals, mesh.world_group)
        scale = (expected / totals[1].clamp(min=1.0)).float() if train.eod_mask_loss else None
        reduce_gradients(self.parameters, mesh, scale)
        return totals

    def _positions(self, step: int) -> list[list[int]]:
        train = self.train
        positions = positions_of_step(step, train.global_batch_size)
        return positions_of_rank(
            positions, train.micro_batch_size, self.mesh.dp_rank, train.parallel.data_parallel_size
        )

    def _take(self, dataset: SampleSource, positions: list[int]) -> Batch:
        """The micro-batch of these positions, which may have been made ahead."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] == positions else self.batch(dataset, positions)

    def run(self, step: int, dataset: SampleSource, *, stop: bool = False) -> StepResult:
        """One step. `stop` says that this rank was told to end; every rank learns of it.

        Whether numbers are finite and how far gradients are clipped is decided on the device; the host looks at the
        result when all of the step is queued, and the next step's first micro-batch is on its way by then.
        """
        train = self.train
        totals = self.accumulate(step, dataset, stop=stop)
        norm = gradient_norm(self.parameters, self.mesh, self.sharding)
        loss = totals[0] / totals[1].clamp(min=1.0)
        is_finite = torch.isfinite(loss) & torch.isfinite(norm)
        rate = learning_rate(train.optimizer, train.schedule, step * train.global_batch_size, train.num_samples)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        guarded_step(self.optimizer, norm, train.optimizer.clip_grad, is_finite)
        if self.device.type != "cpu" and step < train.num_steps:
            positions = self._positions(step + 1)[0]
            self._ahead = (positions, self.batch(dataset, positions))
        numbers = torch.stack([loss, norm, totals[1], totals[2], is_finite.double()]).tolist()
        self.num_updates += int(numbers[4])
        return StepResult(numbers[0], numbers[1], rate, int(numbers[2]), bool(numbers[4]), numbers[3] > 0)
