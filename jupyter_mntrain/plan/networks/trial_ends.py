"""Trial ends: chooses the addresses between which each pair of nodes would train. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.placement import address_of


class TrialEnds(Record, frozen=True):
    """The two ends of a network path.

    Args:
        sender, receiver: nodes, as indices.
        interface, source: of the sender.
        address: of the receiver.
    """

    sender: int
    receiver: int
    interface: str
    source: str
    address: str


def trial_ends(nodes: Sequence[NodeInfo], wanted: Sequence[str | None]) -> tuple[TrialEnds, ...]:
    """Return the ends of every ordered pair on the network that all nodes share, or else on one
    that the two share; nothing for two that share none.

    Args:
        wanted: the named interface of each, or ``None``.
    """
    everyone = range(len(nodes))
    try:
        return _ends(nodes, wanted, everyone)
    except SpecError:
        found: list[TrialEnds] = []
        for one in everyone:
            for other in range(one + 1, len(nodes)):
                try:
                    found += _ends(nodes, wanted, (one, other))
                except SpecError:
                    continue
        return tuple(found)


def _ends(
    nodes: Sequence[NodeInfo], wanted: Sequence[str | None], members: Sequence[int]
) -> tuple[TrialEnds, ...]:
    infos = [nodes[at] for at in members]
    chosen = choose_interfaces(infos, [wanted[at] for at in members])
    hosts = [address_of(info, chosen, rank) for rank, info in enumerate(infos)]
    return tuple(
        TrialEnds(members[one], members[other], chosen[one].name, hosts[one], hosts[other])
        for one, other in permutations(range(len(members)), 2)
        if hosts[one] != hosts[other]
    )
