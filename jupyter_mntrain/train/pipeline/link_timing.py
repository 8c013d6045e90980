"""Link timing: measures the links between stages, between two steps."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from jupyter_mntrain.train.checkpoint.copying import all_hosts
from jupyter_mntrain.train.world import World

TRIES = 3
FREE_SHARE = 0.8
"""Of a GPU's free memory that more microbatches in flight may take."""


class Links(NamedTuple):
    """As every rank knows it.

    Args:
        compute_s: forward and backward of a microbatch, per stage.
        transfer_s: of one there and back, per boundary; 0 between ranks of one node.
        most: microbatches in flight that fit, per stage.
    """

    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    most: tuple[int, ...]


def measure_links(
    world: World, sample: torch.Tensor, compute_s: float, ahead: int, microbatches: int
) -> Links:
    """Send a microbatch there and back between neighbors on different nodes. Every rank calls it.

    Args:
        world: the ranks of a pipeline. Where there are several, all measure at once: as they train.
        sample: as large as what goes from stage to stage.
        compute_s: of a microbatch, on this rank.
        ahead: microbatches in flight on this rank up to now.
    """
    hosts = all_hosts(world)
    mine = 0.0
    # One boundary after the other: what is measured is a link that is idle otherwise.
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
    known: list[tuple[float, float, int]] = [(0.0, 0.0, 0)] * world.size
    own = (compute_s, mine, most_in_flight(world.device, ahead, microbatches))
    dist.all_gather_object(known, own, world.group)
    return Links(
        compute_s=tuple(one[0] for one in known),
        transfer_s=tuple(one[1] for one in known[:-1]),
        most=tuple(one[2] for one in known),
    )


def most_in_flight(device: torch.device, ahead: int, microbatches: int) -> int:
    """By what they have taken of a GPU's memory up to now; on a CPU nobody counts."""
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
