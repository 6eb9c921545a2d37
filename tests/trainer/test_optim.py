"""The learning rate's published values, the norm of each parameter once, clipping, decay of matrices alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ranks import run_ranks
from torch import nn

from trainer.config import AdamWConfig, ParallelConfig, ScheduleConfig
from trainer.optim.gradients import clip_divisor, gradient_norm, guarded_step, reduce_gradients
from trainer.optim.registry import OPTIMIZERS
from trainer.optim.schedule import learning_rate
from trainer.parallel.mesh import build_mesh, single_mesh

RATES = AdamWConfig(learning_rate=1.5e-4, min_learning_rate=1e-5)


def rate(step: int, name: str = "cosine", warmup: float = 0.01) -> float:
    schedule = ScheduleConfig.model_validate({"name": name, "warmup_fraction": warmup})
    return learning_rate(RATES, schedule, step * 512, 300_000 * 512)


def test_the_rates_of_the_published_1_3b_run() -> None:
    """1.5e-4 to 1e-5 in 300,000 steps with 1 % of warm-up, as Megatron-LM computes them."""
    assert rate(1_500) == pytest.approx(7.5e-5, abs=1e-18)
    assert rate(3_000) == pytest.approx(1.5e-4, abs=1e-18)
    assert rate(151_500) == pytest.approx(8.0e-5, abs=1e-15)
    assert rate(300_000) == pytest.approx(1.0e-5, abs=1e-18)


def test_linear_constant_and_no_warmup() -> None:
    assert rate(151_500, "linear") == pytest.approx(8.0e-5, abs=1e-15)
    assert rate(75_000, "linear", 0.0) == pytest.approx(1.15e-4, abs=1e-15)
    assert rate(1_500, "constant") == pytest.approx(7.5e-5, abs=1e-18)
    assert rate(299_999, "constant") == 1.5e-4
    assert rate(300_001) == 1e-5


@given(st.sampled_from(["cosine", "linear", "constant"]), st.floats(0, 0.9), st.integers(1, 2000))
def test_rates_rise_then_fall_within_bounds(name: str, warmup: float, total: int) -> None:
    schedule = ScheduleConfig.model_validate({"name": name, "warmup_fraction": warmup})
    rates = [learning_rate(RATES, schedule, number, total) for number in range(1, total + 1)]
    top = math.floor(warmup * total)
    assert all(0 < value <= 1.5e-4 * (1 + 1e-12) for value in rates)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def named(**grads: list[float]) -> dict[str, nn.Parameter]:
    parameters = {}
    for name, grad in grads.items():
        parameter = nn.Parameter(torch.zeros(len(grad)))
        parameter.grad = torch.tensor(grad)
        parameters[name.replace("_", ".")] = parameter
    return parameters


def _norm_of_tensor_ranks() -> tuple[float, list[float]]:
    mesh = build_mesh(ParallelConfig(tensor_parallel_size=2))
    parameters = named(sliced=[[1.0], [2.0]][mesh.tp_rank], whole=[3.0, 4.0])
    norm = float(gradient_norm(parameters, mesh, lambda name: 0 if name == "sliced" else None))
    torch._foreach_div_([parameter.grad for parameter in parameters.values()], clip_divisor(torch.tensor(norm), 1.0))
    return norm, parameters["whole"].grad.tolist()  # type: ignore[union-attr]


def test_whole_parameters_count_once_over_tensor_ranks() -> None:
    for norm, whole in run_ranks(2, _norm_of_tensor_ranks):
        assert norm == pytest.approx(math.sqrt(30), abs=1e-6)  # 7.4162 when the whole ones count twice
        assert whole == pytest.approx([3 / math.sqrt(30), 4 / math.sqrt(30)], abs=1e-6)


def _norm_of_stages() -> tuple[float, list[float]]:
    mesh = build_mesh(ParallelConfig(pipeline_parallel_size=2))
    parameters = named(wte_weight=[[3.0], [4.0]][mesh.pp_rank], **{f"h_{mesh.pp_rank}_ln": [float(12 * mesh.pp_rank)]})
    reduce_gradients(parameters, mesh, torch.tensor(2.0))
    return float(gradient_norm(parameters, mesh, lambda name: None)), parameters["wte.weight"].grad.tolist()  # type: ignore[union-attr]


def test_both_copies_of_the_tied_embedding_get_the_sum_and_count_once() -> None:
    for norm, tied in run_ranks(2, _norm_of_stages):
        assert tied == [14.0]
        assert norm == pytest.approx(math.hypot(14, 24), abs=1e-5)


def _averaged() -> list[float]:
    mesh = build_mesh(ParallelConfig(data_parallel_size=2))
    parameters = named(a=[1.0 + mesh.dp_rank], b=[10.0])
    if mesh.dp_rank == 1:
        parameters["b"].grad = None
    reduce_gradients(parameters, mesh, torch.tensor(0.5))
    return [parameter.grad.item() for parameter in parameters.values()]  # type: ignore[union-attr]


def test_a_gradient_that_one_replica_lacks_counts_as_zero() -> None:
    assert run_ranks(2, _averaged) == [[1.5, 5.0]] * 2


def test_clipping_leaves_small_gradients_and_can_be_off() -> None:
    for norm, limit in ((0.5, 1.0), (5.0, 0.0)):
        assert clip_divisor(torch.tensor(norm), limit).item() == 1.0


def test_the_norm_is_summed_in_double_precision() -> None:
    parameters = named(**{f"p{index}": [1e-4] for index in range(10_000)}, big=[1e4])
    found = float(gradient_norm(parameters, single_mesh(), lambda name: None))
    assert found == pytest.approx(math.sqrt(1e8 + 10_000 * 1e-8), rel=1e-12)


def _decayed() -> dict[str, list[float]]:
    # In a child, as every optimizer here: where there is a GPU, a step wakes CUDA, and later forks could not use it.
    parameters = {"matrix": nn.Parameter(torch.ones(1, 2)), "vector": nn.Parameter(torch.ones(2))}
    optimizer = OPTIMIZERS["adamw"](parameters, AdamWConfig(learning_rate=0.1, weight_decay=0.5))
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {name: parameter.detach().flatten().tolist() for name, parameter in parameters.items()}


def test_vectors_are_not_decayed() -> None:
    found = run_ranks(1, _decayed)[0]
    assert found["matrix"] == pytest.approx([0.95, 0.95]) and found["vector"] == [1.0, 1.0]


def _adamw_by_hand() -> float:
    """Largest difference between five updates and the formula of the paper, in double precision."""
    config = AdamWConfig(learning_rate=0.01)
    weights = torch.linspace(-1, 1, 12).view(3, 4)
    parameter = nn.Parameter(weights.clone())
    optimizer = OPTIMIZERS["adamw"]({"w": parameter}, config)
    w, m, v = weights.double(), torch.zeros(3, 4).double(), torch.zeros(3, 4).double()
    for step in range(1, 6):
        grad = torch.sin(torch.arange(12.0).view(3, 4) * step)
        parameter.grad = grad.clone()
        optimizer.step()
        g = grad.double()
        m = config.adam_beta1 * m + (1 - config.adam_beta1) * g
        v = config.adam_beta2 * v + (1 - config.adam_beta2) * g * g
        m_hat, v_hat = m / (1 - config.adam_beta1**step), v / (1 - config.adam_beta2**step)
        w = w - 0.01 * config.weight_decay * w - 0.01 * m_hat / (v_hat.sqrt() + config.adam_eps)
    return float((parameter.detach().double() - w).abs().max())


def test_adamw_is_the_papers() -> None:
    assert run_ranks(1, _adamw_by_hand)[0] < 1e-6


@pytest.mark.parametrize("make", [torch.optim.SGD, lambda *a, **k: torch.optim.AdamW(*a, fused=True, **k)])
def test_a_step_is_clipped_and_one_that_is_not_finite_changes_nothing(make: Any) -> None:
    def stepped(grad: list[float], *, is_finite: bool = True, limit: float = 1.0) -> tuple[list[float], Any]:
        parameters = named(a=grad)
        optimizer = make(list(parameters.values()), lr=0.1)
        norm = gradient_norm(parameters, single_mesh(), lambda name: None)
        guarded_step(optimizer, norm, limit, torch.tensor(is_finite))
        return parameters["a"].tolist(), optimizer

    assert stepped([30.0, 40.0])[0] == pytest.approx(stepped([0.6, 0.8])[0], rel=1e-5)
    assert stepped([30.0, 40.0])[0] != [0.0, 0.0]
    after, optimizer = stepped([float("nan"), 40.0], is_finite=False)
    assert after == [0.0, 0.0]
    for state in optimizer.state.values():
        for value in state.values():
            assert value is None or not torch.as_tensor(value).any()
