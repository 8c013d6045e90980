"""Warnings of a job: merges its parts' reasons to doubt its numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Episode, PartStatus
from jupyter_mntrain.model.text.foreign import shown_line

_EXPLAINED_BY: dict[Kind, Kind] = {
    Kind.LOSS_CONSTANT: Kind.ZERO_GRADIENTS,
    Kind.ZERO_GRADIENTS: Kind.LOSS_NAN,
    Kind.LOSS_DIVERGED: Kind.LOSS_NAN,
}
"""Warnings that another one explains."""


def job_warnings(
    parts: Sequence[PartStatus], world_size: int, problem: Problem | None = None
) -> tuple[Problem, ...]:
    """Merge the warnings of all parts into one per kind: that of the first step and the lowest
    rank, with its node. The earliest kind comes first.

    Args:
        world_size: ranks of the attempt.
        problem: why the job failed, which is not repeated.
    """
    told = [
        msgspec.structs.replace(one, node=one.node or part.node)
        for part in parts
        for one in part.warnings
        if not _has_failed_since(one, part)
    ]
    told += [one.problem for one in job_episodes(parts) if one.is_slowdown and one.end_s is None]
    told += [one.problem for part in parts for one in part.saved[-1:] if one.problem is not None]
    apart = never_met(parts, world_size)
    first: dict[Kind, Problem] = {} if apart is None else {apart.kind: apart}
    for one in sorted(told, key=lambda one: (one.step or 0, one.rank or 0, one.time_s or 0.0)):
        first.setdefault(one.kind, one)
    known = {*first, problem.kind} if problem else {*first}
    return tuple(
        one
        for kind, one in sorted(first.items(), key=lambda pair: pair[1].time_s or 0.0)
        if _EXPLAINED_BY.get(kind) not in known and not (problem and problem.kind is kind)
    )


def _has_failed_since(warning: Problem, part: PartStatus) -> bool:
    """Whether a rank that had printed a traceback and continued has failed since, which
    says more.
    """
    return warning.kind is Kind.TRACEBACK and any(
        one.rank == warning.rank and one.state == "failed" for one in part.ranks
    )


def job_episodes(parts: Sequence[PartStatus]) -> tuple[Episode, ...]:
    """Merge the episodes of all parts. One head records them at a time, until another
    takes over.
    """
    found = [
        msgspec.structs.replace(
            one, problem=msgspec.structs.replace(one.problem, node=one.problem.node or part.node)
        )
        if one.problem.rank is not None
        else one
        for part in parts
        for one in part.episodes
    ]
    return tuple(sorted(found, key=lambda one: one.problem.time_s or 0.0))


def never_met(parts: Sequence[PartStatus], world_size: int) -> Problem | None:
    """Warn if every rank is known to train without some of the others."""
    sizes = [rank.group_size for part in parts for rank in part.ranks]
    known = [size for size in sizes if size is not None and size < world_size]
    if world_size < 2 or not sizes or len(known) < len(sizes):
        return None
    cause = "the ranks never met: none has connected to another, so each may have trained alone"
    if all(known):
        count = max(2, round(sum(1 / size for size in known)))
        cause = f"the ranks never met: {count} separate trainings"
    started = (rank.own_torchrun for part in parts for rank in part.ranks)
    inner = next(filter(None, started), "")
    return Problem(
        kind=Kind.RANKS_NEVER_MET,
        cause=cause,
        fix=fix_of(Kind.RANKS_NEVER_MET, "own torchrun", script=shown_line(inner))
        if inner
        else fix_of(
            Kind.RANKS_NEVER_MET,
            nodes=len(parts),
            ranks=max(len(part.ranks) for part in parts),
        ),
    )
