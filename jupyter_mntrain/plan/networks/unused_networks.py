"""Unused networks: finds a faster network that all could share if one node were set up.

The interface choice takes the fastest network that all share. If one node's address, mask or cable
is wrong, that is silently another one, ten times slower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Interface
from typing import NamedTuple

from jupyter_mntrain.model.records.node import Interface, NodeInfo
from jupyter_mntrain.plan.interfaces import carries

FASTER = 2.0
"""Times as fast as the network in use, from which it is worth a word."""


class UnusedNetwork(NamedTuple):
    """A network that cannot be used.

    Args:
        name: of the interface, the same on all nodes.
        bytes_per_s: its speed where it works.
        node: where it does not.
        reason: why, in words like ``has eth1 10.77.2.2/16``.
        network: the subnet that the node should be in.
    """

    name: str
    bytes_per_s: float
    node: str
    reason: str
    network: str


def unused_network(
    nodes: Sequence[NodeInfo], names: Sequence[str], others: Sequence[NodeInfo] = ()
) -> UnusedNetwork | None:
    """Return the fastest network that cannot be used because of one or more nodes.

    Args:
        nodes: the participants' nodes, in node-rank order.
        names: the interfaces that they use.
        others: nodes that do not take part: their addresses tell which of two is right.
    """
    receivers = {node.name for node in nodes}
    used = [_named(node, name) for node, name in zip(nodes, names, strict=True)]
    slowest = min((carries(one, receivers) for one in used if one), default=0.0)
    found = [
        one
        for name in sorted(_names(nodes) - set(names))
        if (one := _unused(nodes, name, receivers, others)) and one.bytes_per_s >= FASTER * slowest
    ]
    return max(found, key=lambda one: one.bytes_per_s, default=None) if slowest else None


def _unused(
    nodes: Sequence[NodeInfo],
    name: str,
    receivers: Collection[str],
    others: Sequence[NodeInfo],
) -> UnusedNetwork | None:
    """Return the network of an interface that every node has, if it works only on some of them."""
    all_of_them = [(node, _named(node, name)) for node in nodes]
    good = [(node, one, one.addresses[0]) for node, one in all_of_them if one and _is_usable(one)]
    if not good or any(one is None for _, one in all_of_them):
        return None
    networks = [IPv4Interface(address).network for _, _, address in good]
    there = [one for node in others if (one := _named(node, name)) and _is_usable(one)]
    seen = [*networks, *(IPv4Interface(one.addresses[0]).network for one in there)]
    # The subnet of most nodes is the right one, if it has room for more than one; of two, the
    # first node's.
    right = max(networks, key=lambda one: (one.num_addresses > 1, seen.count(one)))
    first = next(
        address for (_, _, address), net in zip(good, networks, strict=True) if net == right
    )
    speed = max(carries(one, receivers) for _, one, _ in good)
    owners: dict[str, str] = {}
    for node, one in all_of_them:
        if one is None:
            continue
        if reason := _why_not(one, first) or _taken(one, node, owners):
            return UnusedNetwork(name, speed, node.name, reason, str(right))
    return None


def _taken(interface: Interface, node: NodeInfo, owners: dict[str, str]) -> str | None:
    """Say which other node has the same address; ``None`` if none has."""
    for address in interface.addresses:
        host = str(IPv4Interface(address).ip)
        if owners.setdefault(host, node.name) != node.name:
            return f"{interface.name} has {owners[host]}'s address {host}"
    return None


def _why_not(interface: Interface, right: str) -> str | None:
    """Say why an interface is not on the network of this address; ``None`` if it is."""
    name = interface.name
    if not interface.is_up:
        return f"{name} is down"
    if not interface.addresses:
        return f"{name} has no IPv4 address"
    network = IPv4Interface(right).network
    if all(IPv4Interface(address).network != network for address in interface.addresses):
        return f"{name} has {', '.join(interface.addresses)}, the others are in {network}"
    return None


def _names(nodes: Iterable[NodeInfo]) -> set[str]:
    return {one.name for node in nodes for one in node.inventory.interfaces if _is_real(one)}


def _named(node: NodeInfo, name: str) -> Interface | None:
    return next((one for one in node.inventory.interfaces if one.name == name), None)


def _is_real(interface: Interface) -> bool:
    return interface.kind in ("ethernet", "wireless")


def _is_usable(interface: Interface) -> bool:
    return _is_real(interface) and interface.is_up and bool(interface.addresses)
