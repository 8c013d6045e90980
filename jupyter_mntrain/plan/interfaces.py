"""Interface choice: picks the network over which each participant trains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from ipaddress import IPv4Interface, IPv4Network, ip_address
from typing import NamedTuple

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import Capacity, Interface, NodeInfo
from jupyter_mntrain.plan.agent_hosts import loopback_host
from jupyter_mntrain.plan.link_capacities import bytes_per_s
from jupyter_mntrain.plan.networks.outdated import known_links

NAME_FIX = "name one per node, HOST:N:IFACE, or connect the nodes to one network"


class _Candidate(Record, frozen=True):
    """An address of an interface over which a node could train."""

    interface: Interface
    address: str

    @property
    def network(self) -> IPv4Network:
        return IPv4Interface(self.address).network

    @property
    def host(self) -> str:
        return str(IPv4Interface(self.address).ip)


def choose_interfaces(
    nodes: Sequence[NodeInfo], wanted: Sequence[str | None]
) -> tuple[Interface, ...]:
    """Choose one interface per participant.

    A single participant, and agents that all listen on one machine's loopback addresses, get
    loopback. Otherwise the choice is among interfaces that are up, not virtual, and on a subnet
    that all participants share; of several subnets, the fastest: by given or measured capacity,
    then wired before wireless, then by nominal speed. A subnet is as fast as its slowest
    direction. A named interface is used as it is, even if virtual or routed.

    Args:
        nodes: the participants' nodes, in node-rank order.
        wanted: the named interface of each, or ``None`` to have it chosen.

    Raises:
        SpecError: a named interface is missing, down or has no IPv4 address, or no network is
            shared; the message names the node, what it has, and the fix.
    """
    named = [_named(node, name) if name else None for node, name in zip(nodes, wanted, strict=True)]
    if all(wanted):
        chosen = [interface for interface in named if interface]
        _refuse_unreachable(nodes, chosen)
        return tuple(chosen)
    if len(nodes) == 1 or is_one_machine(nodes):
        return tuple(
            interface or _loopback(node) for node, interface in zip(nodes, named, strict=True)
        )
    return _fastest_shared(nodes, named)


class Faster(NamedTuple):
    """A shared network that is faster than the named interfaces."""

    named: str
    named_bytes_per_s: float
    better: str
    better_bytes_per_s: float


def faster_than(nodes: Sequence[NodeInfo], names: Sequence[str]) -> Faster | None:
    """Return the interfaces that would be chosen automatically, if at least twice as fast.

    Args:
        nodes: the participants' nodes, in node-rank order.
        names: the interfaces that they use.
    """
    try:
        best = choose_interfaces(nodes, [None] * len(nodes))
        named = choose_interfaces(nodes, names)
    except SpecError:
        return None
    receivers = {node.name for node in nodes}
    slow, fast = (
        min(((carries(one, receivers), one) for one in chosen), key=lambda one: one[0])
        for chosen in (named, best)
    )
    if not slow[0] or fast[0] < 2 * slow[0]:
        return None
    return Faster(slow[1].name, slow[0], fast[1].name, fast[0])


def carries(interface: Interface, receivers: Collection[str]) -> float:
    """Return an interface's capacity in bytes per second; 0.0 if unknown."""
    known = capacity_to(interface, receivers)
    return known.bytes_per_s if known else max(0, interface.speed_mbit_per_s or 0) * 1e6 / 8


def capacity_to(interface: Interface, receivers: Collection[str] | None = None) -> Capacity | None:
    """Return the given capacity, or that to the slowest of these nodes (by default, of all)."""
    measured = [
        link.capacity
        for link in known_links(interface.links)
        if receivers is None or link.receiver in receivers
    ]
    return interface.given or min(measured, key=bytes_per_s, default=None)


def is_one_machine(nodes: Sequence[NodeInfo]) -> bool:
    """Whether all agents listen on loopback addresses of the same running machine.

    The boot id alone is not enough: containers and network namespaces share it.
    """
    boots = {node.boot_id for node in nodes}
    return len(boots) == 1 and "" not in boots and all(loopback_host(node) for node in nodes)


def _named(node: NodeInfo, name: str) -> Interface:
    interface = next((i for i in node.inventory.interfaces if i.name == name), None)
    if interface is None:
        problem = f"has no interface {name!r}"
    elif not interface.is_up:
        problem = f"interface {name!r} is down"
    elif not interface.addresses:
        problem = f"interface {name!r} has no IPv4 address"
    else:
        return interface
    usable = [i.name for i in node.inventory.interfaces if i.is_up and i.addresses]
    raise SpecError(
        problem,
        fix=f"use one of {', '.join(usable)}" if usable else "bring an interface up there",
        node=node.name,
    )


def _refuse_unreachable(nodes: Sequence[NodeInfo], chosen: Sequence[Interface]) -> None:
    """Refuse named interfaces that cannot work; routed ones are allowed."""
    if len(nodes) == 1 or is_one_machine(nodes):
        return
    for node, interface in zip(nodes, chosen, strict=True):
        if interface.kind == "loopback":
            raise SpecError(
                f"interface {interface.name!r} is not connected to other machines",
                fix="choose one that the other nodes can reach, or omit it",
                node=node.name,
            )
    first = [_Candidate(interface=one, address=one.addresses[0]) for one in chosen]
    if clash := _clash(nodes, first):
        one, owner, other = clash
        raise SpecError(
            f"interface {one.interface.name!r} has the address {one.host}, and so has {other}'s",
            fix="choose interfaces on which the nodes can reach each other",
            node=owner,
        )


def _loopback(node: NodeInfo) -> Interface:
    for interface in node.inventory.interfaces:
        if interface.kind == "loopback" and interface.is_up:
            return interface
    raise SpecError(
        "has no loopback interface that is up", fix="run there: ip link set lo up", node=node.name
    )


def _fastest_shared(
    nodes: Sequence[NodeInfo], named: Sequence[Interface | None]
) -> tuple[Interface, ...]:
    by_node = [
        [*_candidates([fixed] if fixed else _real(node))]
        for node, fixed in zip(nodes, named, strict=True)
    ]
    networks = set.intersection(*({c.network for c in one} for one in by_node))
    names = {node.name for node in nodes}
    speed = partial(_speed, receivers=names)
    choices = [
        [max((c for c in one if c.network == network), key=speed) for one in by_node]
        for network in networks
    ]
    reachable = [choice for choice in choices if not _clash(nodes, choice)]
    if not reachable:
        raise _nothing_shared(nodes, by_node, choices)
    # Ties are broken by name and network: two drivers choose the same.
    best = max(reachable, key=lambda choice: (min(map(speed, choice)), _last_resort(choice)))
    return tuple(candidate.interface for candidate in best)


def _real(node: NodeInfo) -> list[Interface]:
    return [
        interface
        for interface in node.inventory.interfaces
        if interface.is_up and interface.kind in ("ethernet", "wireless")
    ]


def _candidates(interfaces: Sequence[Interface]) -> Iterator[_Candidate]:
    for interface in interfaces:
        for address in interface.addresses:
            yield _Candidate(interface=interface, address=address)


_Speed = tuple[bool, float, bool, int]


def _speed(candidate: _Candidate, receivers: Collection[str]) -> _Speed:
    interface = candidate.interface
    capacity = capacity_to(interface, receivers)
    known = capacity.bytes_per_s if capacity else 0.0
    # 169.254.0.0/16 (link-local) means that no address was assigned.
    is_assigned = not ip_address(candidate.host).is_link_local
    return is_assigned, known, interface.kind == "ethernet", max(0, interface.speed_mbit_per_s or 0)


def _last_resort(choice: Sequence[_Candidate]) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in f"{choice[0].interface.name} {choice[0].network}")


def _clash(
    nodes: Sequence[NodeInfo], choice: Sequence[_Candidate]
) -> tuple[_Candidate, str, str] | None:
    """Return an address that two machines share, as docker0 has 172.17.0.1 everywhere, and them."""
    owners: dict[str, NodeInfo] = {}
    for node, candidate in zip(nodes, choice, strict=True):
        other = owners.setdefault(candidate.host, node)
        if other is not node and not _same_card(other, node, candidate.host):
            return candidate, node.name, other.name
    return None


def _same_card(one: NodeInfo, other: NodeInfo, host: str) -> bool:
    """Whether two agents run on one machine and therefore share this address."""

    def card(node: NodeInfo) -> str | None:
        candidates = _candidates(node.inventory.interfaces)
        return next((c.interface.mac for c in candidates if c.host == host), None)

    return one.boot_id != "" and one.boot_id == other.boot_id and card(one) == card(other)


def _nothing_shared(
    nodes: Sequence[NodeInfo],
    by_node: Sequence[Sequence[_Candidate]],
    choices: Sequence[Sequence[_Candidate]],
) -> SpecError:
    clash = next((found[0].host for choice in choices if (found := _clash(nodes, choice))), None)
    if clash:
        names = ", ".join(
            node.name
            for node, one in zip(nodes, by_node, strict=True)
            if any(c.host == clash for c in one)
        )
        return SpecError(f"{names} all have the address {clash}", fix=NAME_FIX)
    facts = "; ".join(
        f"{node.name} has {_list(one)}" for node, one in zip(nodes, by_node, strict=True)
    )
    return SpecError(f"no network is shared by all participants: {facts}", fix=NAME_FIX)


def _list(candidates: Sequence[_Candidate]) -> str:
    shown = ", ".join(f"{c.interface.name} {c.address}" for c in candidates)
    return shown or "no physical interface that is up"
