"""Validation: every sample once, in any layout, without dropout, without a trace in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ranks import run_ranks
from tiny_gpt import EOD, VOCAB_SIZE, TinySamples, tiny_train

from trainer.evaluate import evaluate
from trainer.models.gpt.parallelize import build_gpt
from trainer.parallel.mesh import build_mesh, single_mesh
from trainer.step import Stepper

CPU = torch.device("cpu")
NUM_SAMPLES = 5


def evaluated(tp: int, pp: int, dp: int, micro: int) -> tuple[float, int, int, bool]:
    """After half a training step with dropout: what evaluation finds, and whether the model trains on."""
    train = tiny_train(
        micro_batch_size=micro,
        global_batch_size=4 * micro * dp,
        parallel={"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp},
    )
    mesh = build_mesh(train.parallel) if tp * pp * dp > 1 else single_mesh()
    stepper = Stepper(train, vocab_size=VOCAB_SIZE, eod_token_id=EOD, mesh=mesh, device=CPU)
    stepper.backward(1, TinySamples())
    found = evaluate(stepper, TinySamples(NUM_SAMPLES), 100)
    return found.loss, found.num_samples, found.num_tokens, stepper.model.training


def plain_loss() -> float:
    """The mean over all tokens by torch's own loss on the whole model, in double precision."""
    model = build_gpt(tiny_train(), VOCAB_SIZE, single_mesh(), CPU).double().eval()
    model.dtype = torch.float64
    rows = torch.from_numpy(np.stack([TinySamples(NUM_SAMPLES)[index] for index in range(NUM_SAMPLES)]))
    with torch.no_grad():
        return float(F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()))


@pytest.mark.parametrize("micro", [1, 2, 8])
@pytest.mark.parametrize("layout", [(1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 2, 2)], ids=str)
def test_every_sample_counts_once_in_any_layout(layout: tuple[int, int, int], micro: int) -> None:
    wanted: Any = run_ranks(1, plain_loss)[0]
    for loss, num_samples, num_tokens, is_training in run_ranks(int(np.prod(layout)), evaluated, *layout, micro):
        assert abs(loss - wanted) < 1e-6
        assert (num_samples, num_tokens) == (NUM_SAMPLES, NUM_SAMPLES * 12)
        assert is_training
