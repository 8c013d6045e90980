"""Owners of addresses: which nodes have one, and who answers for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Interface
from typing import NamedTuple

from jupyter_mntrain.doctor.check import Case, Examined
from jupyter_mntrain.model.records.doctor.paths import PathTrial
from jupyter_mntrain.model.records.node import Interface


class Owned(NamedTuple):
    """An address of a node's card."""

    node: Examined
    interface: Interface
    address: IPv4Interface

    @property
    def host(self) -> str:
        return str(self.address.ip)


def owned(nodes: Iterable[Examined]) -> Iterator[Owned]:
    """The addresses of their cards that are up, without those that nobody assigned."""
    for node in nodes:
        for interface in node.info.inventory.interfaces:
            if interface.is_up and interface.kind in ("ethernet", "wireless"):
                for text in interface.addresses:
                    address = IPv4Interface(text)
                    if not address.ip.is_link_local:
                        yield Owned(node, interface, address)


def is_one_card(one: Owned, other: Owned) -> bool:
    """Whether two agents run on one machine, and share it."""
    boots = {one.node.info.boot_id, other.node.info.boot_id}
    return len(boots) == 1 and "" not in boots and one.interface.mac == other.interface.mac


def address_owners(case: Case, address: str) -> list[Owned]:
    """Who has an address; of agents that share a card, one."""
    found: list[Owned] = []
    for one in owned(case.nodes):
        if one.host == address and not any(is_one_card(one, other) for other in found):
            found.append(one)
    return found


def stranger(case: Case, trial: PathTrial) -> str:
    """The MAC address of another machine that answers where the peer should; empty if none.

    Of a way that works, another one answers in the peer's place (proxy ARP).
    """
    peer, seen = case.named(trial.peer), trial.neighbor
    if trial.trouble is None or peer is None or seen is None or not seen.mac:
        return ""
    own = {one.mac for one in peer.info.inventory.interfaces if one.mac}
    return seen.mac if own and seen.mac not in own else ""


def is_somebody_elses(case: Case, trial: PathTrial) -> bool:
    """Whether nobody knows which machine a trial has tried."""
    shared = any(len(address_owners(case, one)) > 1 for one in (trial.address, trial.source))
    return shared or bool(stranger(case, trial))


def interface_at(node: Examined | None, address: str) -> Interface | None:
    """A node's interface that has an address."""
    if node is None:
        return None
    return next(
        (
            one
            for one in node.info.inventory.interfaces
            if any(text.partition("/")[0] == address for text in one.addresses)
        ),
        None,
    )
