"""Neighbors: what the kernels' neighbor tables say about why ranks lost each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import Evidence, Neighbor
from jupyter_mntrain.model.records.job import PartStatus

Pair = tuple[Neighbor, Neighbor]
"""One address, as it was at launch and as it is now."""


def another_machine(parts: Sequence[PartStatus], time_s: float | None = None) -> Hypothesis | None:
    """An address that another machine answers for than at launch: two machines have it."""
    for part, evidence in _known(parts):
        for before, now in _pairs(evidence):
            owner = _owner(parts, now.address)
            moved = now.mac and now.mac != before.mac
            if not moved or (owner and now.mac == _mac(owner)):  # its own card was exchanged
                continue
            problem = Problem(
                kind=Kind.DUPLICATE_ADDRESS,
                cause=f"{now.address} is answered by another machine than at the launch (MAC "
                f"{now.mac}, before: {before.mac})",
                fix=fix_of(Kind.DUPLICATE_ADDRESS, address=now.address, mac=now.mac),
                node=owner.node if owner else part.node,
                time_s=time_s,
            )
            return Hypothesis(problem, (f"{part.node} sends to the MAC address {now.mac} now",))
    return None


def silent_neighbors(part: PartStatus, evidence: Evidence) -> Iterator[str]:
    """Signs that nothing answers for an address that was answered for at launch."""
    for before, now in _pairs(evidence):
        if before.mac and not now.mac:
            yield f"{now.address} does not answer the ARP requests of {part.node}"


def _pairs(evidence: Evidence) -> Iterator[Pair]:
    if evidence.at_launch is None:
        return
    before = {one.address: one for one in evidence.at_launch.neighbors if one.mac}
    for now in evidence.network.neighbors:
        if now.address in before:
            yield before[now.address], now


def _known(parts: Iterable[PartStatus]) -> Iterator[tuple[PartStatus, Evidence]]:
    return ((part, part.evidence) for part in parts if part.evidence is not None)


def _owner(parts: Iterable[PartStatus], address: str) -> PartStatus | None:
    """The part whose interface has an address, or had it at launch."""
    for part, evidence in _known(parts):
        states = (evidence.network, evidence.at_launch or evidence.network)
        own = {one.partition("/")[0] for state in states for one in state.addresses}
        if address in own:
            return part
    return None


def _mac(part: PartStatus) -> str:
    return part.evidence.network.mac if part.evidence else ""
