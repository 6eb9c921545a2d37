"""Loss and every gradient of any layout equal one rank's, with dropout on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ranks import run_ranks
from tiny_gpt import EOD, VOCAB_SIZE, TinySamples, tiny_train

from trainer.checkpoint.state import parameter_slice
from trainer.parallel.mesh import build_mesh, single_mesh
from trainer.step import Stepper

LAYOUTS = [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (1, 2, 2), (2, 1, 2), (1, 4, 1), (4, 1, 1)]


def gradients(tp: int, pp: int, dp: int, options: dict[str, Any], steps: int) -> dict[str, Any]:
    """This rank's loss, gradient slices after `steps` - 1 updates, and norm."""
    train = tiny_train(
        parallel={"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp}, **options
    )
    mesh = build_mesh(train.parallel) if tp * pp * dp > 1 else single_mesh()
    stepper = Stepper(train, vocab_size=VOCAB_SIZE, eod_token_id=EOD, mesh=mesh, device=torch.device("cpu"))
    data = TinySamples()
    results = [stepper.run(step, data) for step in range(1, steps)]
    loss, count = stepper.backward(steps, data)
    from trainer.optim.gradients import gradient_norm

    norm = float(gradient_norm(stepper.parameters, mesh, stepper.sharding))
    slices = {}
    for name, parameter in stepper.parameters.items():
        place = parameter_slice(name, parameter, mesh, stepper.sharding, VOCAB_SIZE)
        assert parameter.grad is not None
        start, stop = place.bounds()
        grad = parameter.grad[: stop - start] if name == "wte.weight" else parameter.grad
        slices[name] = (place.dim, start, stop, grad.numpy().copy())
    return {"losses": [result.loss for result in results] + [loss], "count": count, "norm": norm, "grads": slices}


_single: dict[str, Any] = {}


def single(options: dict[str, Any], steps: int) -> dict[str, Any]:
    key = repr((sorted(options.items()), steps))
    if key not in _single:
        _single[key] = run_ranks(1, gradients, 1, 1, 1, options, steps)[0]
    return _single[key]


def check(layout: tuple[int, int, int], options: dict[str, Any], steps: int = 2) -> None:
    tp, pp, dp = layout
    alone = single(options, steps)
    together = run_ranks(tp * pp * dp, gradients, tp, pp, dp, options, steps)
    seen = set()
    for result in together:
        assert result["count"] == alone["count"]
        np.testing.assert_allclose(result["losses"], alone["losses"], rtol=0, atol=1e-6)
        assert abs(result["norm"] - alone["norm"]) < 1e-6
        for name, (dim, start, stop, grad) in result["grads"].items():
            seen.add(name)
            whole = alone["grads"][name][3]
            part = whole if dim is None else np.take(whole, range(start, stop), axis=dim)
            np.testing.assert_allclose(grad, part, rtol=0, atol=1e-6, err_msg=f"{layout} {name}")
    assert seen == set(alone["grads"])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "tp{}_pp{}_dp{}".format(*layout))
def test_gradients_equal_one_rank(layout: tuple[int, int, int]) -> None:
    check(layout, {})


@pytest.mark.parametrize("layout", [(2, 2, 1), (1, 1, 2)], ids=["tp2_pp2", "dp2"])
def test_document_borders_mean_the_same_everywhere(layout: tuple[int, int, int]) -> None:
    check(layout, {"reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True})


def test_one_big_batch_equals_many_small_ones() -> None:
    big = single({"micro_batch_size": 8}, 2)
    small = single({"micro_batch_size": 1}, 2)
    np.testing.assert_allclose(big["losses"], small["losses"], rtol=0, atol=1e-6)
    for name, (_, _, _, grad) in big["grads"].items():
        np.testing.assert_allclose(grad, small["grads"][name][3], rtol=0, atol=1e-6)


def test_dropout_is_on_in_these_tests() -> None:
    without = single({"model": {"hidden_dropout": 0.0, "attention_dropout": 0.0}}, 2)
    assert abs(without["losses"][0] - single({}, 2)["losses"][0]) > 1e-5
