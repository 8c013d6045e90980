"""Memory fit: compares the memory that each rank needs with what its GPU has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import NodeInfo, NodeView
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import (
    CPU_OVERHEAD,
    DeviceOverhead,
    MemoryEstimate,
    forecast,
    gpu_overhead,
    model_config,
)
from jupyter_mntrain.recipe.sections import Recipe

FIX = (
    'use more ranks, more and smaller microbatches, memory.checkpointing = "full", or an '
    "optimizer with less state"
)
HOST_FIX = (
    'where activations are offloaded, use memory.checkpointing = "full", smaller microbatches, or '
    "memory.offload_activations = false; where replicas sync rarely, use adapters, more stages in "
    "each replica, or leave data_parallel.sync_every out"
)


class RankMemory(Record, frozen=True):
    """The memory that one rank needs, and what its GPU has for it.

    Args:
        gpu_bytes: free memory of its GPU, as of the node's last heartbeat and as far as it is
            offered; ``None`` on a CPU, and where the node has not told.
        gpu: the GPU, for people; empty likewise.
        overhead: what it takes of its GPU, or of its node on a CPU, besides its tensors.
        host_bytes: free memory of its node, for all of its ranks; ``None`` where it has not told.
        is_unified: its GPU's memory is its node's: what both need is counted together.
    """

    rank: int
    node: str
    estimate: MemoryEstimate
    overhead: DeviceOverhead
    gpu_bytes: int | None = None
    host_bytes: int | None = None
    gpu: str = ""
    is_unified: bool = False

    @property
    def total(self) -> int:
        """Bytes on its device, including CUDA's own, or the process's on a CPU."""
        return self.estimate.total + self.overhead.total

    @property
    def fits(self) -> bool:
        return self.gpu_bytes is None or self.total <= self.gpu_bytes

    @property
    def of_host(self) -> int:
        """Bytes in its node's memory."""
        return self.estimate.host + (self.total if self.is_unified else 0)


def memory_of_ranks(
    recipe: Recipe, spec: JobSpec, nodes: Sequence[NodeView]
) -> list[RankMemory] | None:
    """Return the memory by rank; ``None`` if the model's directory is not on this machine.

    Raises:
        RecipeError: the recipe cannot run on this number of ranks.
    """
    infos = {view.name: info for view in nodes if (info := view.newest) is not None}
    return rank_memory(recipe, spec.participants, infos)


def rank_memory(
    recipe: Recipe, participants: Sequence[Participant], nodes: Mapping[str, NodeInfo]
) -> list[RankMemory] | None:
    """Return the memory by rank of these participants; see :func:`memory_of_ranks`.

    Args:
        nodes: by the participant's name for it.
    """
    config = model_config(recipe)
    if config is None:
        return None
    ranks = sum(participant.nproc for participant in participants)
    by_place = forecast(recipe, config, ranks)
    layout = lay_out(recipe, ranks, config["num_hidden_layers"])
    is_tied = bool(config.get("tie_word_embeddings"))
    grid = make_grid(recipe, ranks)
    found: list[RankMemory] = []
    for participant in participants:
        info = nodes.get(participant.node)
        sizes = {} if info is None else offered_memory(info, shares=participant.shares_gpus)
        cards = {one.index: one for one in info.inventory.gpus} if info else {}
        for local in range(participant.nproc):
            place = grid.place_of(len(found))
            gpu = participant.gpus[local] if local < len(participant.gpus) else None
            estimate, overhead = by_place[place], CPU_OVERHEAD
            if gpu is not None:
                overhead = gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied)
            else:  # there is nowhere to offload to
                here = estimate.activations + estimate.host
                estimate = msgspec.structs.replace(estimate, activations=here, host=0)
            found.append(
                RankMemory(
                    rank=len(found),
                    node=participant.node,
                    estimate=estimate,
                    gpu_bytes=None if gpu is None else sizes.get(gpu),
                    overhead=overhead,
                    host_bytes=info.inventory.memory_available_bytes if info else None,
                    gpu=f"GPU {gpu} ({cards[gpu].name})" if gpu in cards else "",
                    is_unified=gpu in cards and cards[gpu].is_unified,
                )
            )
    return found


def offered_memory(node: NodeInfo, *, shares: bool = False) -> dict[int, int]:
    """Return the free memory of each GPU, as far as a node's owner offers it, by index.

    Args:
        shares: while others compute there. What a job of this cluster leased, it ends before.
    """
    leased = node.leased_gpus
    return {
        gpu.index: node.availability.memory_of(
            gpu.free_bytes(shares=shares and gpu.index not in leased)
        )
        for gpu in node.inventory.gpus
    }


def memory_notes(found: Sequence[RankMemory]) -> list[Problem]:
    """Return problems of nodes short of memory, and of the rank that needs most of its GPU."""
    notes = [*_host_notes(found)]
    tight = [one for one in found if one.gpu_bytes is not None and not one.fits]
    if not tight:
        return notes
    worst = max(tight, key=lambda one: one.total)
    more = len(tight) - 1
    others = f"; {more} more {'rank needs' if more == 1 else 'ranks need'} too much" if more else ""
    note = Problem(
        kind=Kind.TIGHT_MEMORY,
        cause=f"needs {worst.total / 1e9:.1f} GB with CUDA's own memory, but {worst.gpu} has "
        f"{(worst.gpu_bytes or 0) / 1e9:.1f} GB free{others}",
        fix=FIX,
        node=worst.node,
        rank=Rank(worst.rank),
    )
    return [note, *notes]


def _host_notes(found: Sequence[RankMemory]) -> Iterator[Problem]:
    """Yield problems of nodes with too little memory for what their ranks keep in host memory."""
    for node in dict.fromkeys(one.node for one in found):
        ranks = [one for one in found if one.node == node]
        if any(one.is_unified and not one.fits for one in ranks):
            continue  # it is said of the rank
        needed, free = sum(one.of_host for one in ranks), ranks[0].host_bytes
        if free is not None and needed > free:
            yield Problem(
                kind=Kind.TIGHT_MEMORY,
                cause=f"its ranks keep {needed / 1e9:.1f} GB in host memory, and "
                f"{free / 1e9:.1f} GB are free",
                fix=HOST_FIX,
                node=node,
            )


def memory_text(found: Sequence[RankMemory] | None, recipe: Recipe) -> Text:
    """Describe the memory of each rank: its parts and their sum."""
    if found is None:
        where = f"{recipe.model.path} is not on this machine"
        return Text(f"Memory: {where}; each rank reports it before its first step.", style="dim")
    text = Text("Estimated memory:")
    for one in found:
        # The sum has its own line: notebooks cut off long lines.
        text.append(f"\nrank {one.rank} on {one.node}: {one.estimate.shown_parts}")
        text.append(f"\n  = {one.estimate.shown_total}")
        text.append(f"; with {one.overhead}, {one.total / 1e9:.1f} GB")
        if one.gpu_bytes is not None:
            text.append(f"; {one.gpu} has {one.gpu_bytes / 1e9:.1f} GB free")
        if not one.fits:
            text.append(f", too little: {FIX}", style="yellow")
    for note in _host_notes(found):
        text.append(f"\n{note.node}: {note.cause}: {note.fix}", style="yellow")
    return text


def memory_data(found: Sequence[RankMemory] | None) -> list[dict[str, object]] | None:
    if found is None:
        return None
    return [
        msgspec.to_builtins(one) | {"total_bytes": one.total, "fits": one.fits} for one in found
    ]
