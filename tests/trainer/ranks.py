"""Forked ranks with gloo: a world of several processes in a tenth of a second.

Children inherit the parent's imports. The parent must not have started autograd threads, so it never computes a
gradient: the single rank is a child too.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # every optimizer imports it when it is made, two seconds in each child otherwise
import torch.distributed as dist
import torch.distributed.device_mesh  # as above

TIMEOUT_SECONDS = 120.0


def _child(
    rank: int, world: int, function: Callable[..., Any], arguments: tuple[Any, ...], rendezvous: str, results: Any
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    try:
        if world > 1:
            dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
        results.put((rank, True, function(*arguments)))
    except BaseException:
        results.put((rank, False, traceback.format_exc()))
    finally:
        results.close()
        results.join_thread()
        os._exit(0)


def forked(function: Callable[..., Any], *arguments: Any) -> Any:
    """A started child process.

    Python from 3.12 on warns of forks beside threads; the child never waits for a thread of its parent: it computes on
    one thread of its own.
    """
    child = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    return child


def run_ranks(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(*arguments)` on `world` ranks with a process group; what each returned, by rank.

    Results must not be tensors in shared memory: return numbers, lists or numpy arrays.
    """
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = str(Path(folder) / "rendezvous")
        children = [forked(_child, rank, world, function, arguments, rendezvous, results) for rank in range(world)]
        found: dict[int, Any] = {}
        end = time.monotonic() + TIMEOUT_SECONDS
        try:
            while len(found) < world:
                rank, well, value = results.get(timeout=max(0.1, end - time.monotonic()))
                if not well:
                    raise AssertionError(f"rank {rank} of {world} failed:\n{value}")
                found[rank] = value
        finally:
            for child in children:
                child.join(5 if len(found) == world else 0.2)
                if child.is_alive():
                    child.kill()
                    child.join()
            results.close()
    return [found[rank] for rank in range(world)]
