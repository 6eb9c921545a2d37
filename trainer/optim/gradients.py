"""Gradients over ranks: summed over replicas, their norm with each parameter counted once, clipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from trainer.parallel.mesh import Mesh, all_reduce

CLIP_EPSILON = 1e-6
Sharding = Callable[[str], int | None]


def reduce_gradients(parameters: Mapping[str, nn.Parameter], mesh: Mesh, scale: Tensor | None = None) -> None:
    """Sum gradients over replicas and both copies of the tied embedding, times `scale` (one number), in place.

    One flat buffer, one collective. A parameter without gradient counts as zero, so that all ranks take part alike.
    """
    for parameter in parameters.values():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    tied = parameters.get("wte.weight")
    if tied is not None and mesh.embedding_group is not None:
        assert tied.grad is not None
        all_reduce(tied.grad, mesh.embedding_group)
    grads = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
    if mesh.dp_group is not None:
        flat = torch.cat([grad.flatten() for grad in grads])
        all_reduce(flat, mesh.dp_group)
        for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(part.view_as(grad))
    if scale is not None:
        torch._foreach_mul_(grads, scale)


def is_counted(name: str, mesh: Mesh, sharding: Sharding) -> bool:
    """Whether this rank's gradient of the parameter enters the global norm.

    Slices do on every tensor rank, whole parameters on the first one only, the head's copy of the embedding not at all.
    """
    if name == "wte.weight" and mesh.embedding_group is not None and not mesh.is_first_stage:
        return False
    return sharding(name) is not None or mesh.tp_rank == 0


def gradient_norm(parameters: Mapping[str, nn.Parameter], mesh: Mesh, sharding: Sharding) -> Tensor:
    """The global L2 norm, each parameter counted once: a float64 scalar, the same on every rank."""
    grads = [
        parameter.grad
        for name, parameter in parameters.items()
        if parameter.grad is not None and is_counted(name, mesh, sharding)
    ]
    device = next(iter(parameters.values())).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    if grads:
        total += torch.stack(torch._foreach_norm(grads)).double().square().sum()
    return all_reduce(total, mesh.model_group).sqrt()


def clip_divisor(norm: Tensor, limit: float) -> Tensor:
    """What gradients are divided by to bring their norm to `limit`: (norm + 1e-6) / limit, and 1 where it is lower.

    `limit` 0 is off. float32, on the device of `norm`; nothing waits for it.
    """
    if limit <= 0:
        return torch.ones((), dtype=torch.float32, device=norm.device)
    return torch.where(norm > limit, (norm + CLIP_EPSILON) / limit, torch.ones_like(norm)).float()


def guarded_step(optimizer: torch.optim.Optimizer, norm: Tensor, limit: float, is_finite: Tensor) -> None:
    """An optimizer step with gradients clipped to `limit`; nothing changes when `is_finite` is false.

    Optimizers that take a divisor and a flag (torch's fused ones; the protocol of torch.amp.GradScaler) decide on the
    device, in the pass that updates. Others make the host wait.
    """
    divisor = clip_divisor(norm, limit)
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
    elif bool(is_finite):
        grads = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        torch._foreach_div_(grads, divisor)
        optimizer.step()
