"""Memory fit: compares the memory each rank needs with that of its GPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.recipe.layout import Grid
from jupyter_mntrain.recipe.memory import MemoryEstimate
from jupyter_mntrain.recipe.rank_memory import forecast, model_config
from jupyter_mntrain.recipe.sections import Recipe

OWN_BYTES = 1 << 30
"""Approximate memory of CUDA, NCCL and the current layer, in addition to the estimate."""

FIX = (
    'use more ranks, more and smaller microbatches, memory.checkpointing = "full", or an '
    "optimizer with less state"
)


class RankMemory(Record, frozen=True):
    """Memory that one rank needs, and what its GPU has for it.

    Args:
        gpu_bytes: of its GPU, as far as it is lent; ``None`` on a CPU, and where the node has not
            told.
    """

    rank: int
    node: str
    estimate: MemoryEstimate
    gpu_bytes: int | None = None

    @property
    def fits(self) -> bool:
        return self.gpu_bytes is None or self.estimate.total + OWN_BYTES <= self.gpu_bytes


def memory_of_ranks(
    recipe: Recipe, spec: JobSpec, nodes: Sequence[NodeView]
) -> list[RankMemory] | None:
    """Memory by rank; ``None`` if the model's directory is not on this machine.

    Raises:
        RecipeError: the recipe cannot run on this number of ranks.
    """
    infos = {view.name: view.info for view in nodes if view.info is not None}
    return rank_memory(recipe, spec.participants, infos)


def rank_memory(
    recipe: Recipe, participants: Sequence[Participant], nodes: Mapping[str, NodeInfo]
) -> list[RankMemory] | None:
    """Memory by rank of these participants; see :func:`memory_of_ranks`.

    Args:
        nodes: by the participant's name for it.
    """
    config = model_config(recipe)
    if config is None:
        return None
    ranks = sum(participant.nproc for participant in participants)
    by_place = forecast(recipe, config, ranks)
    grid = Grid(ranks, recipe.data_parallel.replicas, recipe.data_parallel.shards)
    found: list[RankMemory] = []
    for participant in participants:
        sizes = lent_memory(nodes[participant.node]) if participant.node in nodes else {}
        for local in range(participant.nproc):
            rank = len(found)
            gpu = participant.gpus[local] if local < len(participant.gpus) else None
            found.append(
                RankMemory(
                    rank=rank,
                    node=participant.node,
                    estimate=by_place[grid.place_of(rank)],
                    gpu_bytes=None if gpu is None else sizes.get(gpu),
                )
            )
    return found


def lent_memory(node: NodeInfo) -> dict[int, int]:
    """Memory of each GPU that a node's owner lends, by index."""
    lending = node.lending
    return {gpu.index: lending.memory_of(gpu.memory_total_bytes) for gpu in node.inventory.gpus}


def memory_note(found: Sequence[RankMemory]) -> Problem | None:
    """A problem that names the rank that needs most; ``None`` if all fit."""
    tight = [one for one in found if one.gpu_bytes is not None and not one.fits]
    if not tight:
        return None
    worst = max(tight, key=lambda one: one.estimate.total)
    others = f"; {len(tight) - 1} more ranks need too much" if len(tight) > 1 else ""
    return Problem(
        kind=Kind.TIGHT_MEMORY,
        cause=f"needs {worst.estimate.total / 1e9:.1f} GB in addition to CUDA's own memory, but "
        f"its GPU has {(worst.gpu_bytes or 0) / 1e9:.1f} GB{others}",
        fix=FIX,
        node=worst.node,
        rank=Rank(worst.rank),
    )


def memory_text(found: Sequence[RankMemory] | None, recipe: Recipe) -> Text:
    """Memory of each rank: its parts and their sum."""
    if found is None:
        where = f"{recipe.model.path} is not on this machine"
        return Text(f"Memory: {where}; each rank reports it before its first step.", style="dim")
    text = Text("Estimated memory:")
    for one in found:
        # The sum has its own line: notebooks cut off long lines.
        text.append(f"\nrank {one.rank} on {one.node}: {one.estimate.shown_parts}")
        text.append(f"\n  = {one.estimate.shown_total}")
        if one.gpu_bytes is not None:
            text.append(f"; its GPU has {one.gpu_bytes / 1e9:.1f} GB")
        if not one.fits:
            text.append(f", too little: CUDA itself needs some, too. {FIX}", style="yellow")
    return text


def memory_data(found: Sequence[RankMemory] | None) -> list[dict[str, object]] | None:
    if found is None:
        return None
    return [
        msgspec.to_builtins(one) | {"total_bytes": one.estimate.total, "fits": one.fits}
        for one in found
    ]
