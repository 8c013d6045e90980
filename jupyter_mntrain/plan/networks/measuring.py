"""Links to measure: lists every pair of nodes on every network that both share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Interface, IPv4Network
from itertools import permutations

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.node import Interface, LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.probes import LEAST_COUNTED_BYTES, LONGEST_MEASURE_S
from jupyter_mntrain.plan.interfaces import choose_interfaces, is_one_machine
from jupyter_mntrain.plan.networks.outdated import marked_at_receivers, old
from jupyter_mntrain.plan.placement import address_of

RENEWED_AT_LAUNCH = tunables.count("links.renewed_at_launch")
"""As many due links are measured before a job starts."""

Pair = tuple[int, int]
"""Sending and receiving node, as indices."""

MEASURE_S = tunables.seconds("links.measure_s")
AROUND_S = 0.9
"""What a measurement takes besides, on an idle machine: round trips and a warm-up."""

TURN_S = 300.0
"""How long a driver that measures keeps others from it after it last said so, and how long another
one waits for its turn."""


class Measuring(Record, frozen=True):
    """Options of a link measurement.

    Args:
        streams: connections at once.
        is_beside_jobs: also links that a job trains over.
        is_only_due: only those that were never measured, have changed since or are old.
        patience_s: longest time to wait for other drivers that measure.
    """

    streams: int = 1
    is_beside_jobs: bool = False
    is_only_due: bool = False
    patience_s: float = TURN_S


MEASURING = Measuring()


class LinkToMeasure(Record, frozen=True):
    """One direction of a link between two nodes.

    Args:
        pair: sender and receiver.
        interfaces, addresses: of both.
        reason: why it is due, in words; empty if it was never measured.
    """

    pair: Pair
    interfaces: tuple[Interface, Interface]
    addresses: tuple[str, str]
    reason: str = ""


def links_between(
    nodes: Sequence[NodeInfo], wanted: Sequence[str | None]
) -> tuple[LinkToMeasure, ...]:
    """Return the links of every pair of nodes, on every network of real cards that both share.

    Where interfaces are named, and on one machine, there is one link per pair.

    Args:
        wanted: the named interface of each, or ``None``.

    Raises:
        SpecError: a named interface cannot be used, or two nodes share no network.
    """
    found: list[LinkToMeasure] = []
    if any(wanted) or is_one_machine(nodes):
        chosen = choose_interfaces(nodes, wanted)
        hosts = [address_of(node, chosen, rank) for rank, node in enumerate(nodes)]
        return tuple(
            LinkToMeasure(
                pair, (chosen[pair[0]], chosen[pair[1]]), (hosts[pair[0]], hosts[pair[1]])
            )
            for pair in permutations(range(len(nodes)), 2)
        )
    networks = [_networks(node) for node in nodes]
    for pair in permutations(range(len(nodes)), 2):
        one, other = (networks[index] for index in pair)
        shared = [
            LinkToMeasure(pair, (one[at][0], other[at][0]), (one[at][1], other[at][1]))
            for at in sorted(one.keys() & other.keys())
            if one[at][1] != other[at][1]
        ]
        found += shared or _only_link(nodes, pair)
    return tuple(found)


def due(
    links: Iterable[LinkToMeasure],
    nodes: Sequence[NodeInfo],
    now_s: float,
    *,
    is_renewal: bool = False,
) -> tuple[LinkToMeasure, ...]:
    """Return the links that were never measured, have changed since or are old, with the reason.

    Args:
        is_renewal: not those that were never measured.
    """
    marked = marked_at_receivers(nodes)
    found = []
    for link in links:
        sender, receiver = link.pair
        known = _measured(marked[sender], link.interfaces[0].name, nodes[receiver].name)
        if known is None:
            found += [] if is_renewal else [link]
        elif reason := known.outdated or old(known, now_s):
            found.append(msgspec.structs.replace(link, reason=reason))
    return tuple(found)


def expected_s(link: LinkToMeasure, nodes: Sequence[NodeInfo]) -> float:
    """Estimate the seconds that measuring a link takes. A slow link takes longer."""
    sender, receiver = (nodes[index] for index in link.pair)
    known = _measured(sender, link.interfaces[0].name, receiver.name)
    if known is None:
        return AROUND_S + MEASURE_S
    enough_s = LEAST_COUNTED_BYTES / known.capacity.payload_bytes_per_s
    return AROUND_S + min(max(MEASURE_S, enough_s), LONGEST_MEASURE_S)


def _measured(sender: NodeInfo, interface: str, receiver: str) -> LinkMeasurement | None:
    """Return the measurement over one connection, which is the least that training uses."""
    for own in sender.inventory.interfaces:
        for link in own.links:
            if (own.name, link.receiver) == (interface, receiver) and link.streams == 1:
                return link
    return None


def _networks(node: NodeInfo) -> dict[IPv4Network, tuple[Interface, str]]:
    """Return the networks of a node's cards, with card and address."""
    found: dict[IPv4Network, tuple[Interface, str]] = {}
    for interface in node.inventory.interfaces:
        if interface.is_up and interface.kind in ("ethernet", "wireless"):
            for address in map(IPv4Interface, interface.addresses):
                if not address.is_link_local:
                    found.setdefault(address.network, (interface, str(address.ip)))
    return found


def _only_link(nodes: Sequence[NodeInfo], pair: Pair) -> list[LinkToMeasure]:
    two = [nodes[index] for index in pair]
    one, other = choose_interfaces(two, (None, None))
    hosts = [address_of(node, (one, other), rank) for rank, node in enumerate(two)]
    return [LinkToMeasure(pair, (one, other), (hosts[0], hosts[1]))]
