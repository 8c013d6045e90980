"""Outdated measurements: finds what has changed at a link's ends since it was measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.node import Interface, LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.probes import LinkEnd

DAY_S: Final = 86400.0

VALID_S: Final = tunables.seconds("links.valid_s")

_WHAT: Final[Mapping[str, str]] = {
    "mac": "is another card",
    "addresses": "has other addresses",
    "speed_mbit_per_s": "has another speed",
    "mtu": "has another MTU",
    "came_up": "was down",
}


def link_end(interface: Interface) -> LinkEnd:
    """Return an interface's current properties, for comparison with later ones."""
    return LinkEnd(
        mac=interface.mac,
        mtu=interface.mtu,
        speed_mbit_per_s=interface.speed_mbit_per_s,
        addresses=interface.addresses,
        came_up=interface.came_up,
    )


def marked_at_sender(interface: Interface) -> Interface:
    """Return the interface, with measurements marked that are older than its last change."""
    now = link_end(interface)

    def mark(link: LinkMeasurement) -> LinkMeasurement:
        return _marked(link, changed(link.ends[0], now, interface.name)) if link.ends else link

    return _each_marked(interface, mark)


def marked_at_receivers(nodes: Sequence[NodeInfo]) -> tuple[NodeInfo, ...]:
    """Return the nodes, with measurements marked whose receiver has changed since.

    Only measurements to these nodes can be marked.
    """
    interfaces = {node.name: node.inventory.interfaces for node in nodes}

    def mark(link: LinkMeasurement) -> LinkMeasurement:
        there = interfaces.get(link.receiver)
        if link.outdated or there is None or link.ends is None:
            return link
        # Its old card's addresses tell which interface it was, its MAC where it has others now.
        before = link.ends[1]
        same = [one for one in there if link.address in _hosts(one)] or [
            one for one in there if before is not None and before.mac and one.mac == before.mac
        ]
        if not same:
            return _marked(link, f"{link.receiver} no longer has {link.address}")
        return _marked(link, changed(before, link_end(same[0]), f"{link.receiver}: {same[0].name}"))

    def marked(node: NodeInfo) -> NodeInfo:
        return _with_interfaces(
            node, [_each_marked(one, mark) for one in node.inventory.interfaces]
        )

    return tuple(map(marked, nodes))


def changed(before: LinkEnd | None, now: LinkEnd, name: str) -> str:
    """Say what has changed; empty if nothing that is known of both has."""
    if before is None:
        return ""
    for field, words in _WHAT.items():
        old, new = getattr(before, field), getattr(now, field)
        if old is not None and new is not None and old != new:
            return f"{name} {words}"
    return ""


def old(link: LinkMeasurement, now_s: float) -> str:
    """Say how old a link's measurement is, if it is due again; empty if it is not."""
    age_s = now_s - link.capacity.time_s
    return f"it was measured {age_s / DAY_S:.0f} days ago" if age_s > VALID_S else ""


def with_measured(
    nodes: Sequence[NodeInfo], measured: Sequence[LinkMeasurement]
) -> tuple[NodeInfo, ...]:
    """Return the nodes, with new measurements in place of older ones."""

    def renew(node: NodeInfo, interface: Interface) -> Interface:
        new = {
            (one.receiver, one.streams): one
            for one in measured
            if (one.sender, one.interface) == (node.name, interface.name)
        }
        links = {(one.receiver, one.streams): one for one in interface.links} | new
        return msgspec.structs.replace(interface, links=tuple(links.values()))

    return tuple(
        _with_interfaces(node, [renew(node, one) for one in node.inventory.interfaces])
        for node in nodes
    )


def _with_interfaces(node: NodeInfo, interfaces: Sequence[Interface]) -> NodeInfo:
    inventory = msgspec.structs.replace(node.inventory, interfaces=tuple(interfaces))
    return msgspec.structs.replace(node, inventory=inventory)


def known_links(
    links: Sequence[LinkMeasurement], *, is_for_many_streams: bool = False
) -> tuple[LinkMeasurement, ...]:
    """Return one measurement per receiver, without outdated ones.

    Args:
        links: of one interface.
        is_for_many_streams: prefer those over several connections at once.
    """
    found: dict[str, LinkMeasurement] = {}
    for link in sorted(links, key=lambda one: (one.streams > 1) == is_for_many_streams):
        if not link.outdated:
            found[link.receiver] = link
    return tuple(found.values())


def _each_marked(
    interface: Interface, mark: Callable[[LinkMeasurement], LinkMeasurement]
) -> Interface:
    return msgspec.structs.replace(
        interface,
        links=tuple(map(mark, interface.links)),
        benched=tuple(map(mark, interface.benched)),
    )


def _marked(link: LinkMeasurement, outdated: str) -> LinkMeasurement:
    return msgspec.structs.replace(link, outdated=outdated)


def _hosts(interface: Interface) -> set[str]:
    return {address.partition("/")[0] for address in interface.addresses}
