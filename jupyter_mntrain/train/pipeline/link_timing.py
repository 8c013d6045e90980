"""Link timing: measures transfer times between stages, between two training steps."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from jupyter_mntrain.train.world import World, gathered

TRIES = 3
FREE_SHARE = 0.8
"""Share of a GPU's free memory that additional microbatches in flight may use."""


class Links(NamedTuple):
    """Measured times of a pipeline, the same on every rank.

    Args:
        compute_s: forward and backward of a microbatch, per stage.
        transfer_s: round trip of a microbatch, per boundary; 0 within a node.
        most: microbatches in flight that fit into memory, per stage.
    """

    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    most: tuple[int, ...]


def measure_links(
    world: World, sample: torch.Tensor, compute_s: float, ahead: int, microbatches: int
) -> Links:
    """Time a microbatch's round trip between neighbors on different nodes. Collective.

    Args:
        world: the ranks of a pipeline. Several pipelines measure at once, as they will train.
        sample: a tensor of the size that stages exchange.
        compute_s: seconds per microbatch on this rank.
        ahead: current number of microbatches in flight on this rank.
    """
    hosts = gathered(world, world.host)
    mine = 0.0
    # One boundary at a time, so that each link is otherwise idle.
    for stage in range(world.size - 1):
        if hosts[stage] != hosts[stage + 1]:
            if world.rank == stage:
                peer = world.in_job(stage + 1)
                mine = min(_there_and_back(sample, peer, world.group) for _ in range(TRIES))
            elif world.rank == stage + 1:
                peer = world.in_job(stage)
                for _ in range(TRIES):
                    dist.recv(sample, peer, world.group)
                    dist.send(sample, peer, world.group)
        dist.barrier(world.group)
    own = (compute_s, mine, most_in_flight(world.device, ahead, microbatches))
    computing, transfers, most = zip(*gathered(world, own), strict=True)
    return Links(computing, transfers[:-1], most)


def most_in_flight(device: torch.device, ahead: int, microbatches: int) -> int:
    """Estimate how many microbatches fit, from the GPU memory used so far; on a CPU, all."""
    if device.type != "cuda":
        return microbatches
    base = torch.cuda.memory_allocated(device)
    each = (torch.cuda.max_memory_allocated(device) - base) / ahead
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - base
    room = FREE_SHARE * free - each * ahead
    return ahead + max(0, int(room // each)) if each > 0 else microbatches


def _there_and_back(sample: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> float:
    begun = time.perf_counter()
    dist.send(sample, peer, group)
    dist.recv(sample, peer, group)
    if sample.is_cuda:
        torch.cuda.synchronize(sample.device)
    return time.perf_counter() - begun
