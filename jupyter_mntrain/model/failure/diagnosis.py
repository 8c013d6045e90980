"""Diagnosis: finds out why a running job stalls, from the evidence of all its ranks. Pure.

In a pipeline one stuck rank makes all others wait. So a rank that waits explains nothing, unless
all ranks wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import msgspec

from jupyter_mntrain.model.failure.causes.collectives import Caller, mismatched_call, missing_call
from jupyter_mntrain.model.failure.causes.links import broken_link
from jupyter_mntrain.model.failure.causes.quiet import first_quiet
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypotheses import (
    broken_connection,
    changed_interface,
    left_early,
)
from jupyter_mntrain.model.failure.judge import lacks_links
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.sites import MEANINGS, WaitingRank, doing_there, why_all_wait
from jupyter_mntrain.model.quantities import listed
from jupyter_mntrain.model.records.evidence import LinkTry
from jupyter_mntrain.model.records.job import Doing, PartStatus, RankStack

Seen = tuple[PartStatus, RankStack]

UNEXPLAINED = (Kind.ALL_WAIT, Kind.NO_PROGRESS)
"""Nothing else says where to look."""


def diagnose(parts: Sequence[PartStatus]) -> Problem | None:
    """Diagnose a stall; ``None`` while a part makes progress or no live rank is stalled."""
    running = [part for part in parts if part.state in ("starting", "running", "unknown")]
    stalls = [(part, part.stall) for part in running if part.stall is not None]
    if not stalls or any(part.stall is None and part.state != "unknown" for part in running):
        return None
    problem = _problem(running, [(part, stack) for part, stall in stalls for stack in stall.stacks])
    since_s = min(stall.since_s for _, stall in stalls)
    seen_s = min((stall.seen_s for _, stall in stalls if stall.seen_s), default=None)
    if problem is None:
        return None
    if (printed := _printed(running, problem)) is not None:
        return msgspec.structs.replace(printed, time_s=since_s, seen_s=seen_s)
    hint = first_quiet(running, since_s) if problem.kind in UNEXPLAINED else ""
    cause = f"{problem.cause}; {hint}" if hint else problem.cause
    return msgspec.structs.replace(problem, cause=cause, time_s=since_s, seen_s=seen_s)


def _printed(running: Sequence[PartStatus], problem: Problem) -> Problem | None:
    """Return the traceback that a rank printed before it stopped, if that explains the stall."""
    for part in running:
        for one in part.warnings:
            is_stuck = problem.kind is Kind.BUSY and problem.rank == one.rank
            if one.kind is Kind.TRACEBACK and (is_stuck or problem.kind in UNEXPLAINED):
                return msgspec.structs.replace(one, node=one.node or part.node)
    return None


def _problem(running: Sequence[PartStatus], seen: Sequence[Seen]) -> Problem | None:
    silent = [part.node for part in running if part.state == "unknown"]
    if silent:
        others = f", nor does {listed(silent[1:])}" if silent[1:] else ""
        return Problem(
            kind=Kind.NODE_LOST,
            cause=f"does not answer{others}, and the ranks on other nodes wait",
            fix=fix_of(Kind.NODE_LOST),
            node=silent[0],
        )
    is_told = any(part.stall.is_reported for part, _ in seen if part.stall)
    if not is_told and all(stack.doing == "busy" for _, stack in seen):
        return None  # they compute, and what they report nothing of may well be long
    if not seen:  # all ranks have ended, and torchrun has not noticed yet
        return None
    differing = mismatched_call(_callers(seen))
    for doing, tell in _GUILTY.items():
        # A rank that goes on after another call than the others' may be busy by now.
        if doing == "busy" and differing is not None:
            return differing
        guilty = [one for one in seen if one[1].doing == doing]
        if guilty:
            part, stack = guilty[0]
            problem = tell(guilty, seen)
            return msgspec.structs.replace(problem, node=part.node, rank=stack.rank)
    return _missed(running) or _all_wait(seen)


def _missed(running: Sequence[PartStatus]) -> Problem | None:
    """Find a rank that has ended while all others wait. torchrun itself ends them if a
    rank fails.
    """
    gone = [(rank.ended_s, part, rank) for part in running for rank in part.ranks if rank.ended_s]
    if not gone:
        return None
    _, part, rank = min(gone, key=lambda one: one[0])
    return left_early(part, rank)


def _stopped(guilty: Sequence[Seen], _seen: Sequence[Seen]) -> Problem:
    part, stack = guilty[0]
    if stack.where:
        return Problem(
            kind=Kind.STOPPED,
            cause=f"stopped: its control group is frozen, {stack.where}",
            fix=fix_of(Kind.STOPPED, "frozen", node=part.node),
        )
    return Problem(
        kind=Kind.STOPPED,
        cause="stopped by a signal (SIGSTOP, or Ctrl-Z)",
        fix=fix_of(Kind.STOPPED, node=part.node, pid=stack.pid),
    )


def _in_the_kernel(guilty: Sequence[Seen], _seen: Sequence[Seen]) -> Problem:
    part, stack = guilty[0]
    return Problem(
        kind=Kind.IN_KERNEL,
        cause=f"stuck in the kernel{_at(stack)}: a disk, a network file system or a driver "
        "does not answer",
        fix=fix_of(Kind.IN_KERNEL, node=part.node),
    )


def _busy(busy: Sequence[Seen], seen: Sequence[Seen]) -> Problem:
    # It may compute, sleep or wait for a lock of its own: its stack does not say which.
    where = busy[0][1].where
    which = f"in its own code, {where}" if where else "in its own code"
    if busy[1:]:
        which += f" (so are: {listed([f'rank {other.rank}' for _, other in busy[1:]])})"
    waiting = "the other ranks wait" if len(seen) > len(busy) else "no rank waits for another"
    patient = next((one for one in seen if one[1].doing == "waiting for others"), None)
    if patient is not None and patient[1].site is not None:
        waiting += f": {doing_there(_waiting(*patient))}"
    return Problem(
        kind=Kind.BUSY,
        cause=f"{which}, and {waiting}",
        fix=fix_of(Kind.BUSY),
    )


_GUILTY: dict[Doing, Callable[[Sequence[Seen], Sequence[Seen]], Problem]] = {
    "stopped": _stopped,
    "in the kernel": _in_the_kernel,
    "busy": _busy,
}
"""Functions that explain a stall, from the ranks that do not wait, and all ranks."""


def _all_wait(seen: Sequence[Seen]) -> Problem:
    if building := [one for one in seen if one[1].site == "build"]:
        part, stack = building[0]
        where = listed(list(dict.fromkeys(one.node for one, _ in building)))
        return Problem(
            kind=Kind.ALL_WAIT,
            cause=MEANINGS["build"].is_in,
            fix=fix_of(Kind.ALL_WAIT, call=f"{MEANINGS['build'].together}, on {where}"),
            node=part.node,
            rank=stack.rank,
        )
    changed = changed_interface([part for part, _ in seen])
    if changed is not None:
        return changed.problem
    tried = {(part.node, one.peer): one for part, _ in seen for one in _links(part)}
    # Not before both ends have tried: a link that only one of them cannot use is another fault.
    networks = {part.node: part.evidence.network for part, _ in seen if part.evidence}
    broken = None if any(lacks_links(part) for part, _ in seen) else broken_link(tried, networks)
    if broken is not None:
        return broken
    lossy = broken_connection(part for part, _ in seen)
    if lossy is not None:
        return lossy.problem
    missing = missing_call(_callers(seen))
    if missing is not None:
        return missing
    known = [one for one in seen if one[1].doing == "waiting for others"]
    if len(known) < len(seen):
        return Problem(
            kind=Kind.NO_PROGRESS,
            cause="no rank makes progress, and some do not report what they are doing",
            fix=fix_of(Kind.NO_PROGRESS),
        )
    waiting = [_waiting(part, stack) for part, stack in known]
    cause, call = why_all_wait(waiting)
    nodes = sorted({part.node for part, _ in known})
    agree = len({(one.site, one.where) for one in waiting}) == 1
    if agree and len(nodes) > 1:
        if all(pair in tried for pair in permutations(nodes, 2)):
            cause += "; the links between them work"
        else:
            cause += f"; the links between {listed(nodes)} may be broken"
            call = f"measure the links; if they work, {call}"
    return Problem(kind=Kind.ALL_WAIT, cause=cause, fix=fix_of(Kind.ALL_WAIT, call=call))


def _callers(seen: Sequence[Seen]) -> list[Caller]:
    return [Caller(part.node, stack) for part, stack in seen]


def _waiting(part: PartStatus, stack: RankStack) -> WaitingRank:
    return WaitingRank(stack.rank, part.node, stack.site or "exchange", stack.where)


def _links(part: PartStatus) -> tuple[LinkTry, ...]:
    return (part.evidence.links or ()) if part.evidence else ()


def _at(stack: RankStack) -> str:
    return f" in {stack.where}" if stack.where else ""
