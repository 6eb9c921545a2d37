"""The grid of ranks: pipeline x data x tensor, tensor innermost, and a process group for each direction."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import ParallelConfig

Group = Any  # torch.distributed.ProcessGroup; None stands for a group of one


@dataclass(frozen=True)
class Mesh:
    """Where this rank stands, and its groups. A group of size 1 is None: its collectives are nothing."""

    parallel: ParallelConfig
    rank: int
    tp_rank: int
    dp_rank: int
    pp_rank: int
    tp_group: Group = None
    """Ranks that share this rank's layers."""
    dp_group: Group = None
    """Ranks that hold the same parameters."""
    pp_group: Group = None
    """Ranks of this pipeline, first stage first."""
    model_group: Group = None
    """Ranks of this replica: all stages, all tensor ranks."""
    embedding_group: Group = None
    """First and last stage, which both hold the tied embedding; None elsewhere and without a pipeline."""
    world_group: Group = None
    """All ranks."""
    device_mesh: DeviceMesh | None = None
    """The same grid as torch knows it, dimensions "pp", "dp" and "tp"; None for one process."""

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank embeds tokens."""
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank computes the loss."""
        return self.pp_rank == self.parallel.pipeline_parallel_size - 1

    def stage_rank(self, pp_rank: int) -> int:
        """The global rank of a stage of this pipeline."""
        return grid_rank(self.parallel, pp_rank, self.dp_rank, self.tp_rank)


def grid_rank(parallel: ParallelConfig, pp_rank: int, dp_rank: int, tp_rank: int) -> int:
    """Global rank of a place in the grid: tensor ranks are neighbours, pipeline stages farthest apart."""
    return (pp_rank * parallel.data_parallel_size + dp_rank) * parallel.tensor_parallel_size + tp_rank


def single_mesh() -> Mesh:
    """One process, no groups."""
    return Mesh(ParallelConfig(), rank=0, tp_rank=0, dp_rank=0, pp_rank=0)


def build_mesh(parallel: ParallelConfig, device_type: str = "cpu") -> Mesh:
    """The grid over an initialised process group of `parallel.world_size` ranks. Every rank must call it."""
    rank = dist.get_rank()
    tp, dp, pp = parallel.tensor_parallel_size, parallel.data_parallel_size, parallel.pipeline_parallel_size
    grid = init_device_mesh(device_type, (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp"))

    def along(name: str, size: int) -> Group:
        return grid.get_group(name) if size > 1 else None

    def at(p: int, d: int, t: int) -> int:
        return grid_rank(parallel, p, d, t)

    models = [[at(p, d, t) for p in range(pp) for t in range(tp)] for d in range(dp)]
    ends = [[at(0, d, t), at(pp - 1, d, t)] for d in range(dp) for t in range(tp)] if pp > 1 else []
    return Mesh(
        parallel,
        rank,
        tp_rank=rank % tp,
        dp_rank=rank // tp % dp,
        pp_rank=rank // (tp * dp),
        tp_group=along("tp", tp),
        dp_group=along("dp", dp),
        pp_group=along("pp", pp),
        model_group=_group_with(rank, models),
        embedding_group=_group_with(rank, ends),
        world_group=dist.group.WORLD,
        device_mesh=grid,
    )


def _group_with(rank: int, members: list[list[int]]) -> Group:
    """The group that holds `rank`. All ranks make all groups, in one order: that is the protocol of new_group."""
    mine = None
    for ranks in members:
        made = dist.new_group(ranks) if len(ranks) > 1 else None
        if rank in ranks:
            mine = made
    return mine


def start_ranks(parallel: ParallelConfig, device: torch.device, timeout_seconds: float) -> Mesh:
    """Join the other processes that torchrun started, and build the mesh. One process needs none of it."""
    if parallel.world_size == 1:
        return single_mesh()
    if not dist.is_initialized():
        on_gpu = device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            timeout=timedelta(seconds=timeout_seconds),
            # Communicators are made at once: made on first use, a message between two stages would wait for the rest.
            device_id=device if on_gpu else None,
        )
    return build_mesh(parallel, device.type)


def launched_world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def all_reduce(tensor: torch.Tensor, group: Group, op: Any = None) -> torch.Tensor:
    """Sum (or `op`) over a group, in place; nothing in a group of one."""
    if group is not None:
        dist.all_reduce(tensor, op=op or dist.ReduceOp.SUM, group=group)
    return tensor


def barrier(group: Group) -> None:
    """Wait for a group; nothing in a group of one."""
    if group is not None:
        dist.barrier(group=group)


def any_rank(flag: bool, group: Group) -> bool:
    """Whether the flag is set on any rank of a group: what one has to say must stop all, not leave them waiting."""
    if group is None:
        return flag
    on_gpu = dist.get_backend(group) == "nccl"
    told = torch.tensor([float(flag)], device=torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu")
    return bool(all_reduce(told, group).item())
