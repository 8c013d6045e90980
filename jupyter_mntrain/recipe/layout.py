"""Layout: assigns layers to stages, and stages to ranks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.recipe.instructions import rank_of_stage
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe


class Grid(Record, frozen=True):
    """The grid of data-parallel pipelines: ``replicas`` x ``shards`` of them.

    Ranks that hold the same layers have adjacent numbers, so that they share a node if it has
    enough ranks; the shards of one set of weights are adjacent first. Of replicas that sync rarely,
    the ranks of each are adjacent instead.
    """

    ranks: int
    """Total number of ranks."""
    replicas: int = 1
    shards: int = 1
    is_apart: bool = False
    """Whether replicas sync rarely."""

    @property
    def width(self) -> int:
        """The number of pipelines."""
        return self.replicas * self.shards

    @property
    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """Return the ranks of each pipeline, by its part of a batch."""
        return tuple(self._pipeline(part) for part in range(self.width))

    def pipeline_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's pipeline, in stage order."""
        return self._pipeline(self.part_of(rank))

    def alike(self, place: int) -> tuple[int, ...]:
        """Return the ranks at this index in their pipelines, by their part of a batch."""
        return tuple(self._rank(place, part) for part in range(self.width))

    def share_of(self, rank: int, tokens: int) -> int:
        """Return how many of a batch's tokens a rank's pipeline gets; the shares add up to all."""
        return (tokens + self.part_of(rank)) // self.width

    def replicas_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that hold the same weights as this one."""
        return self.alike(self.place_of(rank))[rank % self.shards :: self.shards]

    def shards_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that share this one's sharded weights."""
        first = rank // self.shards * self.shards
        return tuple(range(first, first + self.shards))

    def replica_ranks(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of this one's replica, which has one pipeline per shard."""
        replica = self.replica_of(rank)
        return tuple(one for one in range(self.ranks) if self.replica_of(one) == replica)

    def replica_parts(self, rank: int) -> range:
        """Return the parts of a batch that this rank's replica gets."""
        first = self.replica_of(rank) * self.shards
        return range(first, first + self.shards)

    def ring_of(self, rank: int) -> tuple[int, int]:
        """Return previous and next rank in the ring all-reduce of a rank's replicas."""
        ring, place = self.replicas_of(rank), self.replica_of(rank)
        return ring[place - 1], ring[(place + 1) % len(ring)]

    def shard_ring_of(self, rank: int) -> tuple[int, int]:
        """Return previous and next rank in the ring of those that share a rank's weights."""
        ring = self.shards_of(rank)
        place = ring.index(rank)
        return ring[place - 1], ring[(place + 1) % len(ring)]

    def place_of(self, rank: int) -> int:
        """Return a rank's index in its pipeline."""
        return rank % self._each // self.shards if self.is_apart else rank // self.width

    def part_of(self, rank: int) -> int:
        """Return the index of a rank's pipeline, which is also that of its part of a batch."""
        if self.is_apart:
            return rank // self._each * self.shards + rank % self.shards
        return rank % self.width

    def replica_of(self, rank: int) -> int:
        """Return a rank's index among the ranks that hold the same weights."""
        return self.part_of(rank) // self.shards

    def __str__(self) -> str:
        split = f", weights split over {self.shards}" if self.shards > 1 else ""
        return f"{self.width} pipelines of {self.ranks // self.width} ranks{split}"

    def spread_replicas(self, hosts: Sequence[str]) -> Problem | None:
        """Return a warning if gradients cross the network in every step, else ``None``.

        Args:
            hosts: node of each rank.
        """
        if self.is_apart:
            return None
        if not any(_differ(hosts, self.replicas_of(rank)) for rank in range(self.ranks)):
            return None
        return Problem(
            kind=Kind.SPREAD_REPLICAS,
            cause="some replicas of a stage are on different nodes: gradients cross the network in "
            "every step",
            fix=f"give every node a multiple of {self.width} ranks",
        )

    def spread_shards(self, hosts: Sequence[str]) -> tuple[int, ...] | None:
        """Find ranks on different nodes that share sharded weights; ``None`` if none.

        Args:
            hosts: node of each rank.
        """
        groups = (self.shards_of(rank) for rank in range(self.ranks))
        return next((group for group in groups if _differ(hosts, group)), None)

    @property
    def _each(self) -> int:
        """The number of ranks in a replica."""
        return self.ranks // self.replicas

    def _pipeline(self, part: int) -> tuple[int, ...]:
        return tuple(self._rank(place, part) for place in range(self.ranks // self.width))

    def _rank(self, place: int, part: int) -> int:
        if self.is_apart:
            replica, shard = divmod(part, self.shards)
            return replica * self._each + place * self.shards + shard
        return place * self.width + part


def make_grid(recipe: Recipe, ranks: int) -> Grid:
    """Arrange this number of ranks as a recipe says."""
    section = recipe.data_parallel
    return Grid(ranks, section.replicas, section.shards, is_apart=section.syncs_rarely)


def _differ(hosts: Sequence[str], ranks: Sequence[int]) -> bool:
    return len({hosts[rank] for rank in ranks}) > 1


class Layout(Record, frozen=True):
    """The stages of a pipeline and their ranks: rank r of W holds stages r, r + W, r + 2W, ...

    In a V, it holds r and 2W - 1 - r. Both are what torch's schedules expect. Ranks here are
    indices in the pipeline.
    """

    world_size: int
    stages: tuple[range, ...]
    """Indices of the decoder layers of each stage."""
    is_v: bool = False

    def rank_of(self, stage: int) -> int:
        return rank_of_stage(stage, self.world_size, is_v=self.is_v)

    @property
    def stage_ranks(self) -> list[int]:
        """The rank of each stage."""
        return [self.rank_of(stage) for stage in range(len(self.stages))]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        return tuple(one for one, its in enumerate(self.stage_ranks) if its == rank)

    def layers_of(self, rank: int) -> tuple[int, ...]:
        return tuple(layer for stage in self.stages_of(rank) for layer in self.stages[stage])

    @property
    def last_stage(self) -> int:
        return len(self.stages) - 1

    @property
    def last_rank(self) -> int:
        """The rank that computes the loss."""
        return self.rank_of(self.last_stage)

    def tied_peer(self, rank: int) -> int | None:
        """Return the rank that holds the other copy of a tied embedding, if this rank holds one."""
        ends = (self.rank_of(0), self.last_rank)
        if rank not in ends or ends[0] == ends[1]:
            return None
        return ends[0] if rank == ends[1] else ends[1]

    def directions(self) -> tuple[tuple[int, int], ...]:
        """Return the senders and receivers of activations and gradients, ascending."""
        ranks = map(self.rank_of, range(len(self.stages)))
        pairs = {pair for pair in pairwise(ranks) if pair[0] != pair[1]}
        return tuple(sorted(pairs | {(after, before) for before, after in pairs}))

    def neighbors(self, rank: int, *, tied: bool) -> tuple[int, ...]:
        """Return the ranks that this one exchanges activations and gradients with, ascending."""
        beside = {
            self.rank_of(other)
            for stage in self.stages_of(rank)
            for other in (stage - 1, stage + 1)
            if 0 <= other < len(self.stages)
        }
        peer = self.tied_peer(rank) if tied else None
        if peer is not None:
            beside.add(peer)
        return tuple(sorted(beside - {rank}))


def lay_out(recipe: Recipe, world_size: int, layers: int) -> Layout:
    """Split ``layers`` as the recipe says; it must have passed :func:`recipe.parse.check`.

    An even split gives extra layers to the first stages, since the last already has the output
    projection.

    Args:
        world_size: total ranks of all pipelines.
    """
    stages = recipe.stages(world_size)
    split = recipe.split
    if split == "even":
        share, extra = divmod(layers, stages)
        split = tuple(share + (stage < extra) for stage in range(stages))
    ends = [sum(split[: stage + 1]) for stage in range(stages)]
    return Layout(
        world_size=recipe.pipeline_ranks(world_size),
        stages=tuple(range(end - count, end) for end, count in zip(ends, split, strict=True)),
        is_v=KINDS[recipe.schedule].is_v and stages > 1,
    )
