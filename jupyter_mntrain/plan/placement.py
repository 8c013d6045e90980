"""Placement: assigns ranks, addresses and devices to participants."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Interface
from itertools import accumulate

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import Interface, NodeInfo
from jupyter_mntrain.plan.agent_hosts import loopback_host

LOOPBACK = "127.0.0.1"


def place(
    participants: Sequence[Participant],
    nodes: Sequence[NodeInfo],
    interfaces: Sequence[Interface],
) -> tuple[Placement, ...]:
    """Place participants in node-rank order; ranks are numbered node by node, as in torchrun.

    Args:
        participants: in node-rank order; nodes may have different numbers of processes.
        nodes: the node of each participant.
        interfaces: the interface of each, see :func:`choose_interfaces`.
    """
    ends = accumulate(participant.nproc for participant in participants)
    return tuple(
        Placement(
            node_id=node.node_id,
            node=node.name,
            node_rank=node_rank,
            first_rank=Rank(end - participant.nproc),
            nproc=participant.nproc,
            gpus=participant.gpus,
            interface=interface.name,
            address=address_of(node, interfaces, node_rank),
            agent=node.addresses,
            shares_gpus=participant.shares_gpus,
        )
        for node_rank, (participant, node, interface, end) in enumerate(
            zip(participants, nodes, interfaces, ends, strict=True)
        )
    )


def address_of(node: NodeInfo, interfaces: Sequence[Interface], node_rank: int) -> str:
    """Return the address on which a participant trains.

    It is the one on a subnet that all participants share, else the interface's first. Agents on one
    machine use the loopback addresses that they listen on.
    """
    interface = interfaces[node_rank]
    if interface.kind == "loopback":
        return (loopback_host(node) if len(interfaces) > 1 else None) or LOOPBACK
    others = [
        {IPv4Interface(address).network for address in other.addresses} for other in interfaces
    ]
    own = [IPv4Interface(address) for address in interface.addresses]
    shared = set.intersection(*others)
    return str(next((one for one in own if one.network in shared), own[0]).ip)


def kept_address(interface: Interface, before: str | None) -> str:
    """Return the address for another attempt on an interface that has addresses.

    Args:
        before: that of the placement: one that all participants share. If the interface has lost
            it, its address on the same subnet takes its place.
    """
    own = [IPv4Interface(address) for address in interface.addresses]
    try:
        asked = IPv4Address(before or "")
    except ValueError:
        return str(own[0].ip)
    near = [one for one in own if asked in one.network]
    return str(next((one for one in own if one.ip == asked), (near or own)[0]).ip)
