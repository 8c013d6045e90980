"""Judge: finds out why an attempt failed, from the evidence of all its parts. Pure.

A lost connection is a symptom: some other rank, node or link is its cause. It is never the verdict
while a part ended otherwise than by being stopped, or while the links have not been tried.
"Unknown, and this is what we know" is a verdict, and better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jupyter_mntrain.model.failure import hypotheses
from jupyter_mntrain.model.failure.causes.gpus import broken_gpu, with_other_users
from jupyter_mntrain.model.failure.causes.room import no_room_to_map
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.verdict import Verdict
from jupyter_mntrain.model.quantities import listed
from jupyter_mntrain.model.records.job import TERMINAL, PartStatus

SAME_MOMENT_S = 0.5
"""Two ends closer than this may have happened in either order: an agent looks for its ranks'
processes ten times a second, and its clock is that of another machine."""

WEAK: frozenset[Kind] = frozenset({Kind.EXIT_CODE, Kind.TERMINATED, Kind.CRASHED_AT_END})
"""Ends that may be a program's own reaction to another one's end."""

SENT: frozenset[Kind] = frozenset({Kind.KILLED, Kind.TERMINATED})
"""Ends by a signal that somebody sent to each process."""


def judge(parts: Sequence[PartStatus]) -> Verdict | None:
    """Judge why an attempt failed; ``None`` if no part did."""
    if not any(part.problem for part in parts):
        return None
    ends = hypotheses.ends(parts)
    causes = [end for end in ends if not end.is_symptom]
    if any(end.kind is not Kind.CRASHED_AT_END for end in causes):
        return _explained(parts, _alike(parts, causes))
    symptom = next((end for end in ends if end.is_symptom), None)
    if causes:
        left = symptom and hypotheses.ended_early(parts, symptom)
        return _by_a_hypothesis(left, ends) if left else _of_ends(causes)
    assert symptom is not None  # noqa: S101 - each end is a cause or a symptom
    found = (
        hypotheses.silent_node(parts, symptom)
        or hypotheses.mismatched_collective(parts, symptom)
        or hypotheses.ended_early(parts, symptom)
        or hypotheses.network(parts, symptom)
        or broken_gpu(parts, symptom)
        or hypotheses.broken_connection(parts, symptom.time_s)
        or hypotheses.no_space(parts, symptom)
    )
    is_waiting = any(lacks_links(part) for part in parts)
    if found is None:
        return _unknown(parts, symptom, is_waiting=is_waiting)
    verdict = _by_a_hypothesis(found, ends)
    is_broke = found.problem.kind is Kind.CONNECTION_BROKE
    return msgspec.structs.replace(verdict, is_waiting=is_waiting and is_broke)


def lacks_links(part: PartStatus) -> bool:
    """Whether a part's links still have to be tried, as it stalled or may have failed by them."""
    if part.evidence is None or part.evidence.links is not None:
        return False
    if part.state not in TERMINAL:
        return part.stall is not None
    return part.problem.is_symptom if part.problem else part.stopped_after_failure


def part_to_blame(parts: Iterable[PartStatus]) -> PartStatus | None:
    """Return the part that failed first: causes before symptoms, then by time."""

    def order(part: PartStatus) -> tuple[bool, float]:
        problem: Problem | None = part.problem
        return (problem.is_symptom, problem.time_s or 0.0) if problem else (True, float("inf"))

    guilty = [part for part in parts if part.problem is not None]
    return min(guilty, key=order, default=None)


def _by_a_hypothesis(found: Hypothesis, ends: Sequence[Problem]) -> Verdict:
    is_known = found.problem.kind is not Kind.CONNECTION_BROKE
    return Verdict(
        problem=found.problem,
        sureness="certain" if is_known and not found.speaks_against else "likely",
        speaks_for=found.speaks_for,
        speaks_against=found.speaks_against,
        others=tuple(ends),
    )


def _of_ends(causes: Sequence[Problem]) -> Verdict:
    """Blame the first failure; of several at the same moment, one that is not a reaction."""
    first_s = causes[0].time_s or 0.0
    together = [one for one in causes if (one.time_s or 0.0) - first_s <= SAME_MOMENT_S]
    problem = min(together, key=lambda one: one.kind in WEAK)
    rivals = [one for one in together if one.place != problem.place and one.kind not in WEAK]
    others = tuple(one for one in causes if one is not problem)
    later = [one for one in others if one not in together]
    speaks_for = ["it ended first" if others else "nothing else ended by itself"]
    if later:
        ahead_s = (later[0].time_s or 0.0) - first_s
        speaks_for = [f"it ended {ahead_s:.1f} s before {later[0].place}"]
    against = tuple(f"{one.place} ended in the same moment: {one.cause}" for one in rivals)
    return Verdict(
        problem=problem,
        sureness="likely" if rivals else "certain",
        speaks_for=tuple(speaks_for),
        speaks_against=against,
        others=others,
    )


def _alike(parts: Sequence[PartStatus], causes: Sequence[Problem]) -> Verdict:
    """Return the verdict, with one cause for all ranks that ended alike."""
    verdict = _of_ends(causes)
    end = verdict.problem
    ranks = [rank for part in parts for rank in part.ranks]
    places = [
        (part.node, rank.problem.node)
        for part in parts
        for rank in part.ranks
        if rank.state == "failed" and rank.problem and rank.problem.is_alike(end)
    ]
    # What the trainer refuses is told by all ranks, of the one that has it.
    is_passed_on = any(told not in (None, node) for node, told in places)
    if len(places) < 2 or is_passed_on or end.kind in SENT:
        return verdict
    who = "all ranks" if len(places) == len(ranks) else f"{len(places)} of {len(ranks)} ranks"
    others = [one for one in causes if not one.is_alike(end)]
    verdict = _of_ends([end, *others])
    problem = msgspec.structs.replace(end, cause=f"{who}: {end.cause}", node=None, rank=None)
    return msgspec.structs.replace(verdict, problem=problem)


def _explained(parts: Sequence[PartStatus], verdict: Verdict) -> Verdict:
    """Add to the verdict what GPUs and disks say about the failure that it names."""
    end = verdict.problem
    found = broken_gpu(parts, end) or no_room_to_map(parts, end)
    if found is None:
        return msgspec.structs.replace(verdict, problem=with_other_users(parts, end))
    return msgspec.structs.replace(
        verdict,
        problem=found.problem,
        speaks_for=(*verdict.speaks_for, *found.speaks_for),
        others=(end, *verdict.others),
    )


_SYMPTOM_IN_WORDS = {
    Kind.CONNECTION_LOST: "lost its connection to",
    Kind.TIMED_OUT: "ran into its time-out while it waited for",
}


def _unknown(parts: Sequence[PartStatus], symptom: Problem, *, is_waiting: bool) -> Verdict:
    lost = f"{symptom.place} {_SYMPTOM_IN_WORDS[symptom.kind]} another rank"
    untold = [part.node for part in parts if part.state not in TERMINAL]
    if untold:
        # The cause is often there, and a part tells it only once it has ended.
        problem = Problem(
            kind=Kind.UNKNOWN_CAUSE,
            cause=f"{lost}; how the ranks on {listed(untold)} end is not known yet",
            fix=fix_of(Kind.UNKNOWN_CAUSE),
            detail=symptom.detail,
            time_s=symptom.time_s,
        )
        return Verdict(problem, "unknown", speaks_for=(symptom.headline,), is_waiting=True)
    tried = [part.node for part in parts if part.evidence and part.evidence.links]
    known = ["no rank ended by itself"]
    if tried:
        known.append(f"the links that were tried work now ({', '.join(tried)})")
    errors = [(part.node, one) for part in parts if part.evidence for one in part.evidence.agent]
    if errors:
        node, error = errors[-1]
        known.append(f"the agent of {node} had an error: {error}")
    problem = Problem(
        kind=Kind.UNKNOWN_CAUSE,
        cause=f"cause unknown: {lost}, and {', and '.join(known)}",
        fix=fix_of(Kind.TIMED_OUT if symptom.kind is Kind.TIMED_OUT else Kind.UNKNOWN_CAUSE),
        detail=symptom.detail,
        time_s=symptom.time_s,
    )
    return Verdict(
        problem=problem,
        sureness="unknown",
        speaks_for=(symptom.headline, *known),
        is_waiting=is_waiting,
    )
