"""Placements of a job that a request names, by rank or node."""

from __future__ import annotations

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobView, Placement


def placements_with(
    view: JobView, rank: int | None = None, node: str | None = None
) -> list[Placement]:
    """The job's placements, or those of one rank or node.

    Raises:
        SpecError: the job has no such rank or node.
    """
    placements = view.attempt.placements
    if node is not None and all(node not in (p.node, p.node_id) for p in placements):
        names = ", ".join(p.node for p in placements)
        raise SpecError(f"job {view.job_id} does not run on {node!r}", fix=f"use one of {names}")
    if rank is not None and all(rank not in p.ranks for p in placements):
        raise SpecError(
            f"job {view.job_id} has no rank {rank}",
            fix=f"use one from 0 to {view.attempt.world_size - 1}",
        )
    return [
        placement
        for placement in placements
        if (node is None or node in (placement.node, placement.node_id))
        and (rank is None or rank in placement.ranks)
    ]
