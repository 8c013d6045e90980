"""World: the ranks of this job and their process groups, and torch's settings in this one."""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

import msgspec
import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import (
    GPU_MEMORY_VARIABLE,
    HEARTBEAT_VARIABLE,
    NODE_VARIABLE,
    heartbeat_of,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.recipe.layout import Grid, Layout
from jupyter_mntrain.recipe.schedules import BATCHED
from jupyter_mntrain.recipe.sections import Recipe, TrainSection
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.pipeline.directions import (
    Direction,
    connect,
    create_directions,
)

CONNECTING = "connecting to the other ranks"

_SAME_SUMS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Without it, cuBLAS may add in another order each time (its manual, "Results reproducibility")."""

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's rank in the job, or in its pipeline, and its device.

    Attributes:
        group: process group of these ranks; ``None`` for the whole job.
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
        """Convert a rank of this group to its rank in the job, as torch's sends expect it."""
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


class Report(Record, frozen=True):
    """What a rank reports to the others before the first step; see :func:`agree`."""

    host: str
    problem: Problem | None = None
    digests: dict[str, str] = {}
    """Hashes by name (recipe, corpus, …) that must be equal on all ranks that have them."""


@contextmanager
def join_world(device: str, timeout_s: float) -> Iterator[World]:
    """Join the process group that torchrun set up; without torchrun, make a group of one.

    A default process group that already exists is used and left in place.

    Raises:
        RecipeError: the recipe requires CUDA and there is none.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = _device(device, local_rank)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
        _keep_to_lent_memory(chosen)
    is_ours = not dist.is_initialized()
    if is_ours:
        _init(chosen, timeout_s, is_alone="WORLD_SIZE" not in os.environ)
    world = World(
        rank=dist.get_rank(),
        local_rank=local_rank,
        size=dist.get_world_size(),
        host=os.environ.get(NODE_VARIABLE) or socket.gethostname(),
        device=chosen,
    )
    has_failed = True
    try:
        yield world
        has_failed = False
    finally:
        # After an error this would block on dead peers until the timeout.
        if is_ours and (world.size == 1 or not has_failed):
            dist.destroy_process_group()


@contextmanager
def debugging(section: TrainSection) -> Iterator[None]:
    """Apply the recipe's debugging settings before a GPU is used; restore torch's at the end."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    if section.deterministic:
        os.environ.setdefault(*_SAME_SUMS)
        # An operation without a deterministic form only warns: debugging can go on.
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        with torch.autograd.set_detect_anomaly(
            section.detect_anomaly or torch.is_anomaly_enabled()
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic, warn_only=only_warned)


def _keep_to_lent_memory(device: torch.device) -> None:
    """Use no more of the GPU than its owner offers, apart from CUDA's own context."""
    offered = os.environ.get(GPU_MEMORY_VARIABLE)
    if offered is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, int(offered) / total), device)


@dataclass(frozen=True)
class Groups:
    """The process groups that a rank uses in every step.

    Attributes:
        rank: in the job.
        pipeline: the ranks of its pipeline.
        replicas: the ranks with the same weights; ``None`` if there are no replicas.
        replica: the ranks of its replica, if replicas sync rarely; else ``None``.
        shards: the ranks that share the same sharded weights; ``None`` without sharding.
        directions: from and to each neighbor in the pipeline; empty if its schedule needs none.
    """

    rank: int
    grid: Grid
    pipeline: World
    replicas: dist.ProcessGroup | None = None
    replica: dist.ProcessGroup | None = None
    shards: dist.ProcessGroup | None = None
    directions: Mapping[Direction, dist.ProcessGroup] = field(default_factory=dict)


def form_groups(
    world: World,
    recipe: Recipe,
    grid: Grid,
    layout: Layout,
    progress: ProgressWriter = unwatched,
) -> Groups:
    """Create and connect the process groups of the grid.

    Collective, once all ranks agree on the recipe.

    Args:
        progress: is told while they connect.
    """
    timeout_s = recipe.train.timeout_s
    groups = _create_groups(world, grid, timeout_s)
    if recipe.schedule not in BATCHED:
        wanted = [(ranks[a], ranks[b]) for ranks in grid.pipelines for a, b in layout.directions()]
        groups = replace(groups, directions=create_directions(wanted, world.device, timeout_s))
    connecting = Tally(progress, CONNECTING)
    _connect(groups, world.device)
    connecting.end()
    return groups


def _connect(groups: Groups, device: torch.device) -> None:
    """Use each of this rank's groups once, in the same order on all ranks.

    NCCL connects a group at its first operation, which needs all of its ranks. That must not be the
    exchange of a tied gradient, in which only two take part: the others would be waiting elsewhere.
    A network that lets nothing through is noticed here, too.
    """
    known = (groups.replicas, groups.replica, groups.shards)
    own = [group for group in known if group is not None]
    for group in dict.fromkeys([None, groups.pipeline.group, *own]):
        one = torch.ones(1, device=device)
        dist.all_reduce(one, group=group)
        one.item()  # waits for it
    connect(groups.directions, device)


def _create_groups(world: World, grid: Grid, timeout_s: float) -> Groups:
    if grid.width == 1:
        return Groups(world.rank, grid, world)
    timeout, mine = timedelta(seconds=timeout_s), world.rank

    def own(groups_of: Callable[[int], tuple[int, ...]]) -> dist.ProcessGroup:
        """Create all groups, as torch requires of every rank, and return this rank's."""
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
    replica = None
    if grid.is_apart:
        replica = own(grid.replica_ranks) if grid.shards > 1 else pipeline.group
    return Groups(
        mine,
        grid,
        pipeline,
        own(grid.replicas_of) if grid.replicas > 1 else None,
        replica,
        own(grid.shards_of) if grid.shards > 1 else None,
    )


def gathered(world: World, mine: T) -> list[T]:
    """Gather every rank's value, ordered by rank. Collective."""
    values = [mine] * world.size
    dist.all_gather_object(values, mine, group=world.group)
    return values


def agree(
    world: World, error: RecipeError | None = None, *, digests: dict[str, str] | None = None
) -> list[Report]:
    """Exchange reports. If a rank failed or differs, every rank raises the same error. Collective.

    Args:
        error: this rank's, if it failed.
        digests: this rank's hashes, which must be equal on all ranks that have them.

    Raises:
        RecipeError: names the node that failed, or those that differ.
    """
    report = Report(
        host=world.host, problem=None if error is None else error.problem, digests=digests or {}
    )
    reports = gathered(world, report)
    # No rank may exit before all have received the reports: those still reading would see closed
    # connections and report a network error.
    dist.all_reduce(torch.zeros(1))
    for rank, other in enumerate(reports):
        if other.problem is not None:
            problem = msgspec.structs.replace(other.problem, node=other.host, rank=Rank(rank))
            raise RecipeError.of(problem)
    for subject in dict.fromkeys(one for report in reports for one in report.digests):
        _compare(subject, [report for report in reports if subject in report.digests])
    return reports


def topology(reports: Sequence[Report]) -> str:
    """Describe in one line which ranks are on which node."""
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
    rest = {r.host for r in reports if r.digests[subject] == most}
    names = ", ".join(f"{host} ({digest[:8]})" for host, digest in odd.items())
    cause = f"the {subject} on {names} differs from that on {', '.join(sorted(rest))} ({most[:8]})"
    fixes = {
        "recipe": "give every node the same recipe",
        "corpus": "install the same Python on every node, or copy the same data to every node",
        "tokenizer": "install the same tokenizers package, or copy the same tokenizer.json",
        "base weights": "copy the same model directory to every node",
        "batches": "install the same numpy on every node",
        "format of transfers": "install the same version of jupyter_mntrain on every node, or set "
        'pipeline.transfer = "none"',
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
    # gloo alongside NCCL, because reports are exchanged on the CPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    os.environ.setdefault(HEARTBEAT_VARIABLE, heartbeat_of(timeout_s))
    if is_alone:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout)
