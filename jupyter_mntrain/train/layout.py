"""Which layers make which stage, and which rank holds it. Pure."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.train.sections import Recipe


class Layout(Record, frozen=True):
    """Stages in order, dealt to ranks in turn: rank r holds stages r, r + W, r + 2W, ...

    That is the placement torch's single-stage and interleaved schedules expect.
    """

    world_size: int
    stages: tuple[range, ...]
    """Indices of the decoder layers of each stage."""

    def rank_of(self, stage: int) -> int:
        return stage % self.world_size

    def stages_of(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank, len(self.stages), self.world_size))

    def layers_of(self, rank: int) -> tuple[int, ...]:
        return tuple(layer for stage in self.stages_of(rank) for layer in self.stages[stage])

    @property
    def last_stage(self) -> int:
        return len(self.stages) - 1

    @property
    def last_rank(self) -> int:
        """The rank that knows the loss."""
        return self.rank_of(self.last_stage)

    def tied_peer(self, rank: int) -> int | None:
        """Who holds the other copy of a tied embedding: first and last stage have one each."""
        ends = (self.rank_of(0), self.last_rank)
        if rank not in ends or ends[0] == ends[1]:
            return None
        return ends[0] if rank == ends[1] else ends[1]

    def neighbours(self, rank: int, *, tied: bool) -> tuple[int, ...]:
        """Ranks this one exchanges activations and gradients with, ascending."""
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
    """Cut ``layers`` as the recipe says; it must have passed :func:`recipe.check`.

    An even split gives the layers that are left over to the first stages: the last one already
    has the output projection.
    """
    stages = recipe.stages(world_size)
    split = recipe.pipeline.split
    if split == "even":
        share, extra = divmod(layers, stages)
        split = tuple(share + (stage < extra) for stage in range(stages))
    ends = [sum(split[: stage + 1]) for stage in range(stages)]
    return Layout(
        world_size=world_size,
        stages=tuple(range(end - count, end) for end, count in zip(ends, split, strict=True)),
    )
