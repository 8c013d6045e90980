"""Neighbors: explains by the kernels' neighbor tables why ranks lost one another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import Evidence, Neighbor
from jupyter_mntrain.model.records.job import PartStatus


def another_machine(parts: Sequence[PartStatus], time_s: float | None = None) -> Hypothesis | None:
    """Find an address for which another machine answers than at launch, or than its owner."""
    for part, evidence in _known(parts):
        at_launch = _at_launch(evidence)
        for now in _now(evidence):
            owner, before = _owner(parts, now.address), at_launch.get(now.address, "")
            own = _mac(owner) if owner else ""
            # What answered at launch, too, stands in for the node (proxy ARP); or the node's card
            # was exchanged.
            if not (before or own) or now.mac in ("", before, own):
                continue
            than = "than at the launch " if before else ""
            problem = Problem(
                kind=Kind.DUPLICATE_ADDRESS,
                cause=f"{now.address} is answered by another machine {than}(MAC {now.mac} instead "
                f"of {before or own})",
                fix=fix_of(Kind.DUPLICATE_ADDRESS, address=now.address, mac=now.mac),
                node=owner.node if owner else _peer(evidence, now.address) or part.node,
                time_s=time_s,
            )
            return Hypothesis(problem, (f"{part.node} sends to the MAC address {now.mac} now",))
    return None


def silent_neighbors(part: PartStatus, evidence: Evidence) -> Iterator[str]:
    """Yield signs that no machine answers for an address any more, though one did at launch."""
    at_launch = _at_launch(evidence)
    for now in _now(evidence):
        if not now.mac and now.address in at_launch:
            yield f"{now.address} does not answer the ARP requests of {part.node}"


def _at_launch(evidence: Evidence) -> dict[str, str]:
    """Return the MAC addresses that answered at launch, by IP address."""
    before = evidence.at_launch.neighbors if evidence.at_launch else ()
    return {one.address: one.mac for one in before if one.mac}


def _now(evidence: Evidence) -> Iterable[Neighbor]:
    tried = (link.neighbor for link in evidence.links or ())
    return dict.fromkeys((*evidence.network.neighbors, *filter(None, tried)))


def _known(parts: Iterable[PartStatus]) -> Iterator[tuple[PartStatus, Evidence]]:
    return ((part, part.evidence) for part in parts if part.evidence is not None)


def _owner(parts: Iterable[PartStatus], address: str) -> PartStatus | None:
    """Return the part whose interface has this address, or had it at launch."""
    for part, evidence in _known(parts):
        states = (evidence.network, evidence.at_launch or evidence.network)
        own = {one.partition("/")[0] for state in states for one in state.addresses}
        if address in own:
            return part
    return None


def _peer(evidence: Evidence, address: str) -> str:
    """Return the node that was tried at this address; its own evidence may not be here yet."""
    tried = {link.neighbor.address: link.peer for link in evidence.links or () if link.neighbor}
    return tried.get(address, "")


def _mac(part: PartStatus) -> str:
    return part.evidence.network.mac if part.evidence else ""
