"""RDMA choice: decides whether all participants of a job use InfiniBand or RoCE.

NCCL falls back to TCP without a word, and waits for ever if one node uses InfiniBand and another
does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Interface

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import NodeInfo, RdmaLink, RdmaPort

ACTIVE = "ACTIVE"
DOWN = "DOWN"

Fabrics = Mapping[RdmaPort, Mapping[str, int]]
"""The subnets of each usable port, with the index of its GID there."""


class UnusedRdma(Record, frozen=True):
    """InfiniBand or RoCE that a job could use, but does not.

    Args:
        node: where the reason lies; ``None`` if it lies between them.
        reason: like ``mlx5_0 port 1 is DOWN``.
    """

    link: RdmaLink
    node: str | None
    reason: str


def with_rdma(placements: Sequence[Placement], nodes: Sequence[NodeInfo]) -> tuple[Placement, ...]:
    """Return the placements with every active port of the fabrics that all nodes share, or none.

    Args:
        nodes: of the participants, in node-rank order.
    """
    chosen = _choose(placements, nodes)
    return chosen if isinstance(chosen, tuple) else tuple(placements)


def uses_rdma(placements: Sequence[Placement], nodes: Sequence[NodeInfo]) -> bool:
    """Whether a job uses InfiniBand or RoCE."""
    return isinstance(_choose(placements, nodes), tuple)


def unused_rdma(placements: Sequence[Placement], nodes: Sequence[NodeInfo]) -> UnusedRdma | None:
    """Return why a job uses TCP although a node has InfiniBand, or all nodes have RoCE."""
    chosen = _choose(placements, nodes)
    return chosen if isinstance(chosen, UnusedRdma) else None


def _choose(
    placements: Sequence[Placement], nodes: Sequence[NodeInfo]
) -> tuple[Placement, ...] | UnusedRdma | None:
    # NCCL needs a GPU on every node, and uses no network within one.
    if len(placements) < 2 or not all(place.gpus for place in placements):
        return None
    if any(place.interface == "lo" for place in placements):
        return None
    first_reason = None
    links: tuple[RdmaLink, ...] = ("InfiniBand", "RoCE")
    for link in links:
        chosen = _over(link, placements, nodes)
        if isinstance(chosen, tuple):
            return chosen
        first_reason = first_reason or chosen
    return first_reason


def _over(
    link: RdmaLink, placements: Sequence[Placement], nodes: Sequence[NodeInfo]
) -> tuple[Placement, ...] | UnusedRdma | None:
    usable = [_fabrics(node, link) for node in nodes]
    own = [{name for subnets in ports.values() for name in subnets} for ports in usable]
    if not all(own):
        return _lacking(link, nodes, [bool(one) for one in own])
    shared = set.intersection(*own)
    if not shared:
        return UnusedRdma(link, None, "the nodes' active ports share no subnet")
    placed = []
    for place, ports in zip(placements, usable, strict=True):
        good = {port: subnets for port, subnets in ports.items() if shared & set(subnets)}
        try:
            index = _gid_index(good, shared)
        except ValueError as error:
            return UnusedRdma(link, place.node, str(error))
        names = tuple(f"{port.device}:{port.number}" for port in good)
        placed.append(msgspec.structs.replace(place, rdma_devices=names, rdma_gid_index=index))
    return tuple(placed)


def _fabrics(node: NodeInfo, link: RdmaLink) -> Fabrics:
    ports = [port for port in node.inventory.rdma_ports if port.link == link]
    return {port: _subnets(port, node) for port in ports if port_trouble(port, node) is None}


def _subnets(port: RdmaPort, node: NodeInfo) -> Mapping[str, int]:
    if port.link == "InfiniBand":
        return {port.subnet: 0}
    addresses = [
        IPv4Interface(one) for interface in node.inventory.interfaces for one in interface.addresses
    ]
    return {
        str(address.network): gid.index
        for gid in reversed(port.gids)  # of two in a subnet the first
        for address in addresses
        if str(address.ip) == gid.address
    }


def port_trouble(port: RdmaPort, node: NodeInfo) -> str | None:
    """Return why a node's port cannot be used, to follow its name; ``None`` if it can."""
    if port.state != ACTIVE:
        return f"is {port.state}"
    if port.obstacle:
        return port.obstacle
    return None if _subnets(port, node) else "has no RoCE v2 GID with an IPv4 address"


def _gid_index(ports: Fabrics, shared: Collection[str]) -> int | None:
    """Return the GID index for NCCL; ``None`` if NCCL finds it itself: since 2.21, the first of
    RoCE v2 with an IPv4 address.

    Raises:
        ValueError: ports need different indices. NCCL takes one per process.
    """
    indices = [
        {index for subnet, index in subnets.items() if subnet in shared}
        for subnets in ports.values()
    ]
    if all(
        not port.gids or port.gids[0].index in right
        for port, right in zip(ports, indices, strict=True)
    ):
        return None
    if common := set.intersection(*indices):
        return min(common)
    raise ValueError("its ports need different GID indices, and NCCL takes one")


def _lacking(
    link: RdmaLink, nodes: Sequence[NodeInfo], is_usable: Sequence[bool]
) -> UnusedRdma | None:
    """Return the first node without a usable port, if that is worth mentioning.

    RoCE is no loss where one node's network card cannot do it, nor are cables that nobody plugged
    in.
    """
    ports = [[one for one in node.inventory.rdma_ports if one.link == link] for node in nodes]
    if link == "RoCE" and not all(ports):
        return None
    if not any(port.state != DOWN for own in ports for port in own):
        return None
    node, own = next(
        (node, own) for node, own, good in zip(nodes, ports, is_usable, strict=True) if not good
    )
    if not own:
        return UnusedRdma(link, node.name, f"it has no {link} adapter")
    best = min(own, key=lambda port: (port.state != ACTIVE, port.state == DOWN))
    reason = f"{best.device} port {best.number} {port_trouble(best, node)}"
    return UnusedRdma(link, node.name, reason)
