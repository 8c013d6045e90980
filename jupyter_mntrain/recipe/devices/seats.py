"""Seats: what each rank of a job computes on. Pure; imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.lending import Lending
from jupyter_mntrain.model.records.node import Gpu, NodeInfo, Tools, Versions
from jupyter_mntrain.recipe.sections import Recipe

_CPU_BUILD = "+cpu"
"""Ends the version of a torch that knows no GPUs."""

_ALL = Lending()

VARLEN_TORCH = (2, 12)
"""The first torch whose ``varlen_attn`` has all that is used of it; 2.11's lacks ``enable_gqa``."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


class Seat(Record, frozen=True):
    """What a rank computes on.

    Args:
        node: its name.
        gpu: the GPU, for people; ``None`` on a CPU.
        capability: its compute capability; ``None`` if it is unknown.
        memory_bytes: that ranks may use of it; ``None`` if it is unknown.
        tools: what the rank's interpreter has; ``None`` if it is unknown.
        has_varlen: whether its torch has flash attention for documents of different lengths;
            ``None`` if it is unknown.
    """

    node: str
    gpu: str | None = None
    capability: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    tools: Tools | None = None
    has_varlen: bool | None = None


def seats_of(
    recipe: Recipe, participants: Sequence[Participant], infos: Sequence[NodeInfo]
) -> tuple[Seat, ...]:
    """The seats of a job, by rank.

    Args:
        infos: the participants' nodes, in the same order, with the versions that the job runs in.
    """
    pairs = zip(participants, infos, strict=True)
    return tuple(
        seat
        for one, info in pairs
        for seat in _on_node(
            recipe, info.name, one, info.inventory.versions, info.inventory.gpus, info.lending
        )
    )


def leased_seats(
    recipe: Recipe, placements: Sequence[Placement], grants: Sequence[LeaseGrant]
) -> tuple[Seat, ...]:
    """The seats of an attempt, by rank; none of nodes that do not tell their versions.

    Args:
        grants: of the leases, in the same order.
    """
    pairs = zip(placements, grants, strict=True)
    return tuple(
        seat
        for one, grant in pairs
        if grant.versions is not None
        for seat in _on_node(recipe, one.node, one, grant.versions, grant.gpus)
    )


def _on_node(
    recipe: Recipe,
    node: str,
    asked: Participant | Placement,
    versions: Versions,
    gpus: Sequence[Gpu],
    lending: Lending = _ALL,
) -> Iterator[Seat]:
    on_cpu = Seat(node=node, tools=versions.tools)
    has_cuda = not (versions.torch or "").endswith(_CPU_BUILD)
    if recipe.train.device == "cpu" or not asked.gpus or not has_cuda:
        yield from [on_cpu] * asked.nproc
        return
    cards = {gpu.index: gpu for gpu in gpus}
    for index in asked.gpus:
        card = cards.get(index)
        free = None if card is None else card.free_bytes(shares=asked.shares_gpus)
        yield Seat(
            node=node,
            gpu=f"GPU {index}" if card is None else f"GPU {index}, {card.name}",
            capability=None if card is None else card.compute_capability,
            memory_bytes=None if free is None else lending.memory_of(free),
            tools=versions.tools,
            has_varlen=_has_varlen(versions.torch),
        )


def _has_varlen(torch: str | None) -> bool | None:
    """Whether this version has the kernel, for grouped queries and windows, too."""
    found = _NUMBERS.match(torch or "")
    return None if found is None else (int(found[1]), int(found[2])) >= VARLEN_TORCH
