"""World: this job's ranks and their process groups."""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec
import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import NODE_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.recipe.layout import Grid


@dataclass(frozen=True)
class World:
    """This process among the job's ranks, or among those of its pipeline, and its device.

    Attributes:
        group: to talk to these ranks; ``None`` for all of the job.
    """

    rank: int
    local_rank: int
    size: int
    host: str
    device: torch.device
    group: dist.ProcessGroup | None = None

    @property
    def is_head(self) -> bool:
        return self.rank == 0

    def in_job(self, rank: int) -> int:
        """A rank of these by its number in the job, as torch's sends and receives want it."""
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


class Report(Record, frozen=True):
    """What each rank tells the others before the first step."""

    host: str
    problem: Problem | None = None
    digests: dict[str, str] = {}
    """By what they are of: recipe, corpus, tokenizer, batches. Must be equal on all ranks."""


@contextmanager
def join_world(
    device: str, timeout_s: float, environment: Mapping[str, str] = os.environ
) -> Iterator[World]:
    """Join the process group torchrun prepared; alone, be a group of one without a network.

    A default process group that is already there is used and left in place.

    Raises:
        RecipeError: the recipe wants CUDA where there is none.
    """
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    chosen = _device(device, local_rank)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    is_ours = not dist.is_initialized()
    if is_ours:
        _init(chosen, timeout_s, is_alone="WORLD_SIZE" not in environment)
    world = World(
        rank=dist.get_rank(),
        local_rank=local_rank,
        size=dist.get_world_size(),
        host=environment.get(NODE_VARIABLE) or socket.gethostname(),
        device=chosen,
    )
    has_failed = True
    try:
        yield world
        has_failed = False
    finally:
        # After an error a backend would wait here, for peers that are gone, until its timeout.
        if is_ours and (world.size == 1 or not has_failed):
            dist.destroy_process_group()


@dataclass(frozen=True)
class Groups:
    """Whom a rank talks to in every step.

    Attributes:
        rank: in the job.
        pipeline: the ranks of its pipeline.
        replicas: those that hold the same weights; ``None`` if nobody else does.
        shards: those that split the same weights among themselves; likewise.
    """

    rank: int
    grid: Grid
    pipeline: World
    replicas: dist.ProcessGroup | None = None
    shards: dist.ProcessGroup | None = None


def form_groups(world: World, grid: Grid, timeout_s: float) -> Groups:
    """Every rank calls it, once all agree on the recipe."""
    if grid.width == 1:
        return Groups(world.rank, grid, world)
    timeout, mine = timedelta(seconds=timeout_s), world.rank

    def own(groups_of: Callable[[int], tuple[int, ...]]) -> dist.ProcessGroup:
        """All ranks make all groups, in one order: torch wants it."""
        everybody = dict.fromkeys(map(groups_of, range(grid.ranks)))
        made: dict[tuple[int, ...], dist.ProcessGroup] = {
            ranks: dist.new_group(ranks, timeout=timeout) for ranks in everybody
        }
        return made[groups_of(mine)]

    pipeline = replace(
        world,
        rank=grid.place_of(mine),
        size=len(grid.pipeline_of(mine)),
        group=own(grid.pipeline_of),
    )
    return Groups(
        mine,
        grid,
        pipeline,
        own(grid.replicas_of) if grid.replicas > 1 else None,
        own(grid.shards_of) if grid.shards > 1 else None,
    )


def agree(world: World, report: Report) -> list[Report]:
    """Exchange reports; every rank fails with the same line if one has a problem or differs.

    Raises:
        RecipeError: naming the nodes.
    """
    reports: list[Report | None] = [None] * world.size
    dist.all_gather_object(reports, report)
    # Everybody has all reports before anybody leaves over one: a rank that ends at once would close
    # its connections on those still reading, and they would blame the network.
    dist.all_reduce(torch.zeros(1))
    known = [r for r in reports if r is not None]
    for other in known:
        if other.problem is not None:
            raise RecipeError.of(msgspec.structs.replace(other.problem, node=other.host))
    for subject in known[0].digests:
        _compare(subject, known)
    return known


def topology(reports: Sequence[Report]) -> str:
    """One line: which ranks are on which node."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank, report in enumerate(reports):
        by_host[report.host].append(rank)
    return "topology: " + ", ".join(f"{host} {ranks}" for host, ranks in by_host.items())


def _compare(subject: str, reports: Sequence[Report]) -> None:
    digests = [report.digests[subject] for report in reports]
    most = Counter(digests).most_common(1)[0][0]
    odd = {r.host: d for r, d in zip(reports, digests, strict=True) if d != most}
    if not odd:
        return
    rest = {r.host for r, d in zip(reports, digests, strict=True) if d == most}
    names = ", ".join(f"{host} ({digest[:8]})" for host, digest in odd.items())
    cause = f"the {subject} on {names} differs from that on {', '.join(sorted(rest))} ({most[:8]})"
    fixes = {
        "recipe": "give every node the same recipe",
        "corpus": "install the same Python on every node, or copy the same data to every node",
        "tokenizer": "install the same tokenizers package, or copy the same tokenizer.json",
        "batches": "install the same numpy on every node",
    }
    raise RecipeError(cause, fix=fixes.get(subject, "make it the same on every node"))


def _device(wanted: str, local_rank: int) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if wanted == "cuda" and not has_cuda:
        raise RecipeError(
            'train.device = "cuda": torch finds no CUDA device on this node',
            fix='use "auto" or "cpu"',
        )
    if wanted == "cpu" or not has_cuda:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        cause = f"local rank {local_rank} has no GPU: torch sees {count}"
        raise RecipeError(cause, fix=f"start at most {count} processes on this node")
    return torch.device("cuda", local_rank)


def _init(device: torch.device, timeout_s: float, *, is_alone: bool) -> None:
    # gloo beside NCCL: reports are exchanged on the CPU, before anything is on the GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if is_alone:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout)
