"""Diagnosis: why a running job makes no progress, from the evidence of all its ranks. Pure.

In a pipeline whoever is stuck has everybody else wait. So the ranks that wait for others explain
nothing, as long as there is one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.failure.sites import WaitingRank, doing_there, why_all_wait
from jupyter_mntrain.model.records.job import Diagnosis, PartStatus, RankStack, Stall

Seen = tuple[PartStatus, Stall, RankStack]


def diagnose(parts: Sequence[PartStatus]) -> Diagnosis | None:
    """Whom to blame; ``None`` while any part gets on, or nobody has said that it does not."""
    running = [part for part in parts if part.state in ("starting", "running", "unknown")]
    stalls = [(part, part.stall) for part in running if part.stall is not None]
    if not stalls or any(part.stall is None and part.state != "unknown" for part in running):
        return None
    since_s = min(stall.since_s for _, stall in stalls)
    silent = [part.node for part in running if part.state == "unknown"]
    if silent:
        return Diagnosis(
            summary=f"{_listed(silent)} does not answer, and ranks on other nodes wait for it",
            fix="see 'nodes' for the reason; the job continues if it comes back",
            since_s=since_s,
            node=silent[0],
        )
    seen = [(part, stall, stack) for part, stall in stalls for stack in stall.stacks]
    for tell in (_stopped, _in_the_kernel, _busy):
        found = tell(seen, since_s)
        if found is not None:
            return found
    return _all_wait(seen, since_s)


def _stopped(seen: Sequence[Seen], since_s: float) -> Diagnosis | None:
    guilty = [one for one in seen if one[2].doing == "stopped"]
    if not guilty:
        return None
    part, _, stack = guilty[0]
    return Diagnosis(
        summary=f"rank {stack.rank} on {part.node} was stopped by a signal (SIGSTOP, or Ctrl-Z)",
        fix=f"on {part.node}: kill -CONT {stack.pid}",
        since_s=since_s,
        node=part.node,
        rank=stack.rank,
    )


def _in_the_kernel(seen: Sequence[Seen], since_s: float) -> Diagnosis | None:
    guilty = [one for one in seen if one[2].doing == "in the kernel"]
    if not guilty:
        return None
    part, _, stack = guilty[0]
    return Diagnosis(
        summary=f"rank {stack.rank} on {part.node} hangs in the kernel: a disk, a network file "
        f"system or a driver does not answer{_at(stack)}",
        fix=f"look at dmesg and the mounts of {part.node}",
        since_s=since_s,
        node=part.node,
        rank=stack.rank,
    )


def _busy(seen: Sequence[Seen], since_s: float) -> Diagnosis | None:
    busy = [one for one in seen if one[2].doing == "busy"]
    if not busy:
        return None
    part, _, stack = busy[0]
    others = len(seen) - len(busy)
    which = f"rank {stack.rank} on {part.node} is"
    if len(busy) > 1:
        which = f"ranks {_listed([str(one[2].rank) for one in busy])} are busy; {which}"
    waiting = "and the others wait for it" if others else "and no rank waits for another"
    patient = next((one for one in seen if one[2].doing == "waiting for others"), None)
    if patient is not None and patient[2].site is not None:
        waiting += f": {doing_there(_waiting(patient[0], patient[2]))}"
    return Diagnosis(
        summary=f"{which}{_at(stack) or ' in code of its own'}, {waiting}",
        fix="check that rank's stack: it is stuck there, or in an unusually long step",
        since_s=since_s,
        node=part.node,
        rank=stack.rank,
    )


def _all_wait(seen: Sequence[Seen], since_s: float) -> Diagnosis:
    broken = _broken_link(seen, since_s)
    if broken is not None:
        return broken
    known = [one for one in seen if one[2].doing == "waiting for others"]
    if len(known) < len(seen) or not known:
        return Diagnosis(
            summary="no rank makes progress, and not all of them report a stack",
            fix="see their logs; ranks that use a Recorder report their stacks",
            since_s=since_s,
        )
    waiting = [_waiting(part, stack) for part, _, stack in known]
    summary, fix = why_all_wait(waiting)
    nodes = sorted({part.node for part, _, _ in known})
    agree = len({(one.site, one.where) for one in waiting}) == 1
    if agree and len(nodes) > 1:
        if all(stall.links is not None for _, stall, _ in seen):
            summary += "; data gets through between them"
        else:
            summary += f"; possibly no data gets through between {_listed(nodes)}"
            fix = f"measure the links; if data gets through, {fix}"
    return Diagnosis(summary=summary, fix=fix, since_s=since_s)


def _waiting(part: PartStatus, stack: RankStack) -> WaitingRank:
    return WaitingRank(stack.rank, part.node, stack.site or "exchange", stack.where)


def _broken_link(seen: Sequence[Seen], since_s: float) -> Diagnosis | None:
    """By what the nodes found out when they tried to reach each other."""
    troubles = {part.node: stall.links or () for part, stall, _ in seen}
    flat = [(node, one) for node, links in troubles.items() for one in links]
    down = next(((node, one) for node, one in flat if one.trouble == "down"), None)
    if down is not None:
        node, one = down
        return Diagnosis(
            summary=f"{one.interface} on {node} is down, and the ranks talk over it",
            fix=f"check its cable and its switch port, or on {node}: "
            f"ip link set {one.interface} up",
            since_s=since_s,
            node=node,
        )
    if not flat:
        return None
    node, one = min(flat, key=lambda pair: pair[1].trouble != "stuck")
    back = next((o for n, o in flat if n == one.peer and o.peer == node), None)
    pair = f"{node} and {one.peer}"
    if one.trouble == "stuck":
        return Diagnosis(
            summary=f"connections between {pair} open, but large packets from {node} do not get "
            f"through over {one.interface}: its MTU is larger than that of the network",
            fix=f"on {pair}: ip link set {one.interface} mtu 1500",
            since_s=since_s,
            node=node,
        )
    if back is None:
        return Diagnosis(
            summary=f"{node} cannot connect to {one.peer} over {one.interface}, though "
            f"{one.peer} can connect to {node}: a firewall on {one.peer}, or between them",
            fix=f"let {node} connect to {one.peer} on all high ports",
            since_s=since_s,
            node=one.peer,
        )
    how = "is refused" if one.trouble == "refused" else "gets no answer"
    return Diagnosis(
        summary=f"no data gets through between {pair} over {one.interface}: connecting {how}, "
        "both ways",
        fix="check the switch and the firewalls between them; then measure the links",
        since_s=since_s,
        node=one.peer,
    )


def _at(stack: RankStack) -> str:
    return f" in {stack.where}" if stack.where else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
