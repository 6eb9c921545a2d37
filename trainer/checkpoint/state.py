"""A training state to a checkpoint folder and back, from any layout to any other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer.checkpoint.folder import keep_last, point_at, publish, read_checkpoint_manifest, step_folder, verify
from trainer.checkpoint.shards import ShardReader, Slice, write_shard
from trainer.metrics import ExitCode, TrainError
from trainer.parallel.mesh import Mesh, any_rank, barrier

MODEL = "model/"
MOMENTS = ("exp_avg", "exp_avg_sq")
Sharding = Callable[[str], int | None]


def parameter_slice(name: str, parameter: Tensor, mesh: Mesh, sharding: Sharding, vocab_size: int) -> Slice:
    """Where this rank's parameter lies in its global tensor. The vocabulary counts without its padding."""
    dim, size, shape = sharding(name), mesh.parallel.tensor_parallel_size, list(parameter.shape)
    if dim is None:
        return Slice(tuple(shape))
    start, stop = mesh.tp_rank * shape[dim], (mesh.tp_rank + 1) * shape[dim]
    shape[dim] *= size
    if name == "wte.weight":
        shape[0] = vocab_size
        start, stop = min(start, vocab_size), min(stop, vocab_size)
    return Slice(tuple(shape), dim, start, stop)


def _is_writer(name: str, mesh: Mesh, sharding: Sharding) -> bool:
    if mesh.dp_rank or (name == "wte.weight" and not mesh.is_first_stage):
        return False
    return sharding(name) is not None or mesh.tp_rank == 0


def save(
    output_dir: Path,
    step: int,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    mesh: Mesh,
    sharding: Sharding,
    *,
    vocab_size: int,
    keep: int,
    facts: dict[str, Any],
    interval: int = 1,
) -> Path:
    """Save parameters and moments after `step`; every rank calls it. Returns the folder, whole when it returns.

    `facts` go into the manifest beside the step. The newest `keep` checkpoints stay (see `keep_last` for `interval`).
    """
    temporary, target = output_dir / f".saving_{step:08d}", step_folder(output_dir, step)
    if mesh.rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    barrier(mesh.world_group)
    tensors: dict[str, Tensor] = {}
    slices: dict[str, Slice] = {}
    for name, parameter in parameters.items():
        if not _is_writer(name, mesh, sharding):
            continue
        place = parameter_slice(name, parameter, mesh, sharding, vocab_size)
        state = optimizer.state.get(parameter, {})
        for prefix, tensor in [(MODEL, parameter.data), *((f"{moment}/", state.get(moment)) for moment in MOMENTS)]:
            if tensor is None:
                tensor = torch.zeros_like(parameter)
            if name == "wte.weight":
                tensor = tensor[: place.stop - place.start]
            tensors[prefix + name], slices[prefix + name] = tensor, place
    if tensors:
        write_shard(temporary / f"rank_{mesh.rank:05d}.safetensors", tensors, slices)
    barrier(mesh.world_group)
    if mesh.rank == 0:
        publish(temporary, target, {"step": step, **facts})
        point_at(output_dir, step)
        keep_last(output_dir, keep, interval)
    barrier(mesh.world_group)
    return target


def load(
    folder: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    mesh: Mesh,
    sharding: Sharding,
    *,
    vocab_size: int,
) -> dict[str, Any]:
    """Read parameters and moments into this layout and return the manifest.

    The files are verified first. Raises TrainError (bad checkpoint) on every rank when anything is wrong.
    """
    _verify_once(folder, mesh)
    manifest = read_checkpoint_manifest(folder)
    reader = ShardReader(folder)
    num_updates = float(manifest["num_updates"])
    with torch.no_grad():
        for name, parameter in parameters.items():
            place = parameter_slice(name, parameter, mesh, sharding, vocab_size)
            _fill(parameter.data, reader, MODEL + name, place)
            state: dict[str, Tensor] = {"step": torch.tensor(num_updates, device=parameter.device)}
            for moment in MOMENTS:
                state[moment] = torch.zeros_like(parameter)
                _fill(state[moment], reader, f"{moment}/{name}", place)
            optimizer.state[parameter] = state
    return manifest


def _fill(tensor: Tensor, reader: ShardReader, name: str, place: Slice) -> None:
    rows = place.stop - place.start
    if place.dim is not None and rows == 0:
        tensor.zero_()
        return
    found = reader.read(name, place)
    if found.shape == tensor.shape:
        tensor.copy_(found)
    else:  # the rest of the vocabulary's rows are padding
        tensor[: found.shape[0]].copy_(found)
        tensor[found.shape[0] :].zero_()


def _verify_once(folder: Path, mesh: Mesh) -> None:
    error: TrainError | None = None
    if mesh.rank == 0:
        try:
            verify(folder)
        except TrainError as found:
            error = found
    if any_rank(error is not None, mesh.world_group) and error is None:
        raise TrainError(f"{folder} is damaged; rank 0 says how", exit_code=ExitCode.BAD_CHECKPOINT)
    if error is not None:
        raise error


def load_full_state(folder: Path) -> dict[str, Tensor]:
    """Every parameter of a checkpoint folder as a full fp32 tensor by global name, vocabulary without padding.

    Needs no process group. The files are verified first. Raises TrainError (bad checkpoint).
    """
    verify(folder)
    reader = ShardReader(folder)
    return {name.removeprefix(MODEL): reader.full(name) for name in reader.names() if name.startswith(MODEL)}
