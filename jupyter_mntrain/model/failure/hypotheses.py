"""Hypotheses: explains a failed attempt by each kind of evidence. Pure.

Each function reads one kind of evidence from all parts, and returns what it would explain.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.model.failure.causes.collectives import Caller, mismatched_call
from jupyter_mntrain.model.failure.causes.links import broken_link
from jupyter_mntrain.model.failure.causes.neighbors import another_machine, silent_neighbors
from jupyter_mntrain.model.failure.causes.room import is_full
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import Evidence, NetworkState
from jupyter_mntrain.model.records.job import PartStatus, RankStatus

WHOLE_SECOND_S = 1.0
"""torchelastic reports the time of a failure in whole seconds."""

RESENT_SHARE = 0.02
"""A connection is suspected if at least this share of the machine's TCP segments was sent again."""
UNSTABLE_LOSSES = 2
"""A link that lost its signal this often since the launch is unstable: nobody pulls a cable so
often."""


def own(part: PartStatus) -> Problem | None:
    """Return a part's problem with its node, by default the part's own."""
    return part.problem and _at(part, part.problem)


def ends(parts: Iterable[PartStatus]) -> list[Problem]:
    """Return every failure of a rank, a torchrun or a supervisor that nobody requested."""
    found = []
    for part in parts:
        # What a rank printed that exited with code 0 explains an end only if nothing else does.
        of_ranks = [
            rank.problem
            for rank in part.ranks
            if rank.problem is not None and rank.problem.kind is not Kind.TRACEBACK
        ]
        problems = [*of_ranks, *([part.problem] if part.problem is not None else [])]
        for problem in problems:
            if not _was_asked_for(part, problem) and _at(part, problem) not in found:
                found.append(_at(part, problem))
    return sorted(found, key=lambda problem: problem.time_s or 0.0)


def silent_node(parts: Iterable[PartStatus], symptom: Problem) -> Hypothesis | None:
    """Blame a participant that does not answer."""
    silent = next((part.node for part in parts if part.state == "unknown"), None)
    if silent is None:
        return None
    problem = Problem(
        kind=Kind.NODE_LOST,
        cause="does not answer, and the other nodes lost their connection to it",
        fix=fix_of(Kind.NODE_LOST),
        node=silent,
        time_s=symptom.time_s,
    )
    return Hypothesis(problem, ("its agent does not answer",))


def ended_early(parts: Iterable[PartStatus], symptom: Problem) -> Hypothesis | None:
    """Blame a rank that ended normally before another one lost its connection."""
    until_s = (symptom.time_s or 0.0) + WHOLE_SECOND_S
    done = [
        (ended_s, part, rank)
        for part in parts
        for rank in part.ranks
        if (ended_s := _normal_end(part, rank)) is not None and ended_s < until_s
    ]
    if not done:
        return None
    _, part, rank = min(done, key=lambda one: one[0])
    problem = msgspec.structs.replace(left_early(part, rank), time_s=symptom.time_s)
    return Hypothesis(problem, ("it ended before the others failed",))


def left_early(part: PartStatus, rank: RankStatus) -> Problem:
    """Return the problem of a rank that ended before the others could, and how it ended."""
    if rank.problem is not None and rank.problem.kind is not Kind.CRASHED_AT_END:
        return msgspec.structs.replace(_at(part, rank.problem), rank=rank.rank)
    kind, cause = _ending(rank)
    return Problem(
        kind=kind,
        cause=f"{cause} while other ranks still needed it",
        fix=fix_of(kind),
        node=part.node,
        rank=rank.rank,
    )


def _ending(rank: RankStatus) -> tuple[Kind, str]:
    """Say how a rank ended, by its exit code."""
    code = None if rank.problem else rank.exit_code
    if code is None and rank.done_s is None:
        return Kind.ENDED_EARLY, "ended, in a way that is not known yet,"
    if not code:
        return Kind.ENDED_EARLY, "ended normally"
    if code > 0:
        return Kind.EXIT_CODE, f"ended with exit code {code}"
    kind = Kind.KILLED if code == -signal.SIGKILL else kind_of_signal(-code)
    return kind, f"was killed by {signal_name(-code)}"


def kind_of_signal(number: int) -> Kind:
    """Return whether a signal asks a process to end or reports a crash; SIGKILL does neither."""
    is_asked = number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return Kind.TERMINATED if is_asked else Kind.CRASHED


def signal_name(number: int) -> str:
    """Return a signal's name, like ``SIGSEGV``, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def mismatched_collective(parts: Iterable[PartStatus], symptom: Problem) -> Hypothesis | None:
    """Blame a collective that ranks called differently before they stalled."""
    found = mismatched_call(
        [Caller(part.node, one) for part in parts if part.stall for one in part.stall.stacks]
    )
    if found is None:
        return None
    return _timed(Hypothesis(found, ("the ranks' flight recorders differ there",)), symptom)


def network(parts: Sequence[PartStatus], symptom: Problem) -> Hypothesis | None:
    """Blame a link that does not work now, or an interface or a neighbor that has changed."""
    changed = changed_interface(parts)
    if changed is not None:
        return _timed(changed, symptom)
    known = [(part, part.evidence) for part in parts if part.evidence is not None]
    tried = {(part.node, link.peer): link for part, one in known for link in one.links or ()}
    broken = broken_link(tried, {part.node: one.network for part, one in known})
    if broken is not None:
        signs = (sign for part, one in known for sign in silent_neighbors(part, one))
        reasons = ("its links were tried after the failure", *signs)
        return _timed(Hypothesis(broken, reasons), symptom)
    return None


def changed_interface(parts: Sequence[PartStatus]) -> Hypothesis | None:
    """Blame an interface of the ranks, or a machine that answers for its address, that
    has changed.
    """
    known = ((part, part.evidence) for part in parts if part.evidence is not None)
    changed = (found for part, one in known if (found := _changed(part, one)))
    return next(changed, None) or another_machine(parts)


def no_space(parts: Iterable[PartStatus], symptom: Problem) -> Hypothesis | None:
    """Blame a full or read-only disk of the job, as no rank can write there."""
    for part in parts:
        for disk in part.evidence.disks if part.evidence else ():
            is_of_job = disk.use in ("job", "checkpoints") and disk.free_bytes is not None
            if not (is_of_job and (is_full(disk) or disk.is_read_only)):
                continue
            kind = Kind.READ_ONLY if disk.is_read_only else Kind.DISK_FULL
            what = "read-only" if disk.is_read_only else "full"
            problem = Problem(
                kind=kind,
                cause=f"the disk of {disk.path} is {what}",
                fix=fix_of(kind),
                node=part.node,
                time_s=symptom.time_s,
            )
            return Hypothesis(problem, (f"it is {what} now",), ("no rank said so",))
    return None


def broken_connection(
    parts: Iterable[PartStatus], time_s: float | None = None
) -> Hypothesis | None:
    """Blame a connection that broke although both ends continued, and that can be opened again."""
    known = [(part, part.evidence) for part in parts if part.evidence is not None]
    signs = [sign for part, one in known for sign in _signs_of_loss(part, one)]
    if not signs:
        return None
    lost, part, one = max(
        ((_signal_losses(one), part, one) for part, one in known), key=lambda found: found[0]
    )
    if lost >= UNSTABLE_LOSSES:
        name = one.network.interface
        problem = Problem(
            kind=Kind.LINK_DOWN,
            cause=f"{name}, the interface the ranks used, lost its signal {lost} times",
            fix=fix_of(Kind.LINK_DOWN, "unstable", node=part.node, interface=name),
            node=part.node,
            time_s=time_s,
        )
        return Hypothesis(problem, tuple(sign.text for sign in signs))
    problem = Problem(
        kind=Kind.CONNECTION_BROKE,
        cause=f"the network broke a connection between ranks: {signs[0].text}",
        fix=fix_of(Kind.CONNECTION_BROKE),
        node=signs[0].node,
        time_s=time_s,
    )
    return Hypothesis(problem, tuple(sign.text for sign in signs), ("new connections work",))


def _changed(part: PartStatus, evidence: Evidence) -> Hypothesis | None:
    """Blame a change of the ranks' interface since the launch."""
    now, before = evidence.network, evidence.at_launch
    name = now.interface
    if not now.is_there:
        problem = Problem(
            kind=Kind.LINK_DOWN,
            cause=f"{name}, the interface the ranks used, is gone",
            fix=fix_of(Kind.LINK_DOWN, "gone", node=part.node),
            node=part.node,
        )
        return Hypothesis(problem, (f"{part.node} has no {name} now",))
    if not now.is_up:
        problem = Problem(
            kind=Kind.LINK_DOWN,
            cause=f"{name}, the interface the ranks used, is down",
            fix=fix_of(Kind.LINK_DOWN, node=part.node, interface=name),
            node=part.node,
        )
        return Hypothesis(problem, (f"{name} of {part.node} is down now",))
    if before is not None and not set(before.addresses) <= set(now.addresses):
        lost = ", ".join(sorted(set(before.addresses) - set(now.addresses)))
        has = ", ".join(now.addresses) or "none"
        problem = Problem(
            kind=Kind.ADDRESS_CHANGED,
            cause=f"{name}, the interface the ranks used, lost its address {lost} (now: {has})",
            fix=fix_of(Kind.ADDRESS_CHANGED, interface=name),
            node=part.node,
        )
        return Hypothesis(problem, (f"the address of {name} was {lost} at launch",))
    return None


class _Sign(NamedTuple):
    """A sign of packet loss, and the node whose packets, cable or card are concerned, if known."""

    text: str
    node: str | None = None


def _signs_of_loss(part: PartStatus, evidence: Evidence) -> Iterable[_Sign]:
    now, before = evidence.network, evidence.at_launch
    for one in evidence.stuck[:1]:
        yield _Sign(
            f"packets of an open connection from {part.node} to {one.peer} are not answered, sent "
            f"{one.resends} times again",
            part.node,
        )
    yield from map(_Sign, silent_neighbors(part, evidence))
    if before is None:
        return
    if lost := _signal_losses(evidence):
        often = "once" if lost == 1 else f"{lost} times"
        text = f"the cable of {now.interface} on {part.node} lost its signal {often}"
        yield _Sign(text, part.node)
    if (share := _resent_share(before, now)) >= RESENT_SHARE:
        yield _Sign(f"{part.node} had to send {share:.0%} of its packets again", part.node)


def _signal_losses(evidence: Evidence) -> int:
    """Count how often the cable was disconnected since the job was last well. The kernel counts
    both directions.
    """
    before = evidence.at_launch
    if before is None:
        return 0
    return max(0, evidence.network.carrier_changes - before.carrier_changes + 1) // 2


def _resent_share(before: NetworkState, now: NetworkState) -> float:
    sent = now.sent - before.sent
    return (now.resent - before.resent) / sent if sent > 0 else 0.0


def _normal_end(part: PartStatus, rank: RankStatus) -> float | None:
    if rank.done_s is not None:
        return rank.done_s
    if rank.exit_code == 0 and rank.ended_s is not None:
        return rank.ended_s
    return part.ended_s if part.state == "succeeded" else None


def _was_asked_for(part: PartStatus, problem: Problem) -> bool:
    """Whether a problem occurred after its part was asked to end, and thus explains nothing."""
    if part.stopped_s is None or problem is part.problem:
        return False
    return problem.time_s is None or problem.time_s > part.stopped_s


def _at(part: PartStatus, problem: Problem) -> Problem:
    return problem if problem.node else msgspec.structs.replace(problem, node=part.node)


def _timed(found: Hypothesis, symptom: Problem) -> Hypothesis:
    problem = msgspec.structs.replace(found.problem, time_s=symptom.time_s)
    return found._replace(problem=problem)
