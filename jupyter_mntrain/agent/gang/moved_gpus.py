"""Moved GPUs: replaces a job's former GPUs and interface when an allocation provides others."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Interface

import msgspec

from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.model.sources.slots import SLOT_FILE

# Moved interface: the one in the place of a job's former one, where it has another name.


_ANY_PORT = 9


def source_toward(address: str) -> str | None:
    """Return the address from which this machine would send to another. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((address, _ANY_PORT))
        except OSError:
            return None
        return str(asked.getsockname()[0])


def interface_now(
    asked: str | None,
    before: str | None,
    there: Sequence[Interface],
    source: Callable[[str], str | None] = source_toward,
) -> str | None:
    """Return the interface that now reaches the network on which the job has trained.

    Args:
        asked: its name before.
        before: its address then, which the other participants reached.
        there: those of the node as it is now.
        source: the address from which this machine sends to another.

    Returns:
        What was asked for, if none reaches that network: the node says itself what it lacks.
    """
    try:
        former = IPv4Address(before or "")
    except AddressValueError:
        return asked
    if asked is None or former.is_loopback:
        return asked
    usable = {
        one: [IPv4Interface(address) for address in one.addresses]
        for one in there
        if one.is_up and one.addresses and one.kind != "loopback"
    }
    # Bridges of containers have the same networks everywhere: one is taken where it was asked for.
    near = {
        one.name: max(each.network.prefixlen for each in own if former in each.network)
        for one, own in usable.items()
        if one.name == asked or one.kind != "virtual"
        if any(former in each.network for each in own)
    }
    if near:
        return min(near, key=lambda name: (name != asked, -near[name]))
    if asked in {one.name for one in usable}:
        return asked
    from_here = source(str(former))
    routed = (one.name for one, own in usable.items() if from_here in {str(a.ip) for a in own})
    return next(routed, asked)


def is_of_allocation(node: LocalNode) -> bool:
    """Return whether a scheduler granted this node, and may replace its machine with another."""
    return (node.state.path / SLOT_FILE).exists()


def as_it_is_now(node: LocalNode, request: LeaseRequest) -> LeaseRequest:
    """Adapt the request for a further attempt to the node's current interface and GPUs.

    An allocation that is granted again may be on another machine, or hold other cards of the same
    one: all of them are there for its jobs, whatever their numbers and names. A machine that was
    joined by hand has the cards that a person chose from, so there nothing is changed.
    """
    if not is_of_allocation(node):
        return request
    there = node.inventory.read().interfaces
    interface = interface_now(request.interface, request.address, there)
    return _on_gpus(node, msgspec.structs.replace(request, interface=interface))


def _on_gpus(node: LocalNode, request: LeaseRequest) -> LeaseRequest:
    if not request.gpus:
        return request
    lease = node.leases.find(request.job_id, request.attempt)
    if lease is not None:  # it is renewed
        return msgspec.structs.replace(request, gpus=lease.gpus)
    node.owner.look()
    gpus, leases = node.inventory.read().gpus, node.leases.all()
    taken = {index for lease in leases for index in lease.gpus}
    free = [
        gpu.index
        for gpu in gpus
        if gpu.index not in taken
        and gpu.may_be_used()
        and node.owner.availability.offers_gpu(gpu.index)
    ]
    moved = gpus_now(request.gpus, {gpu.index for gpu in gpus}, free)
    return msgspec.structs.replace(request, gpus=moved)


def gpus_now(asked: Sequence[int], there: Collection[int], free: Sequence[int]) -> tuple[int, ...]:
    """Return as many GPUs as were requested: free ones replace those that are gone.

    Args:
        there: indices of those that the node has; a busy one is waited for.
        free: those of them that nobody uses.

    Returns:
        What was asked for, if the node has too few: it says so itself.
    """
    spare = [index for index in free if index not in asked]
    gone = [index for index in asked if index not in there]
    if len(gone) > len(spare):
        return tuple(asked)
    instead = dict(zip(gone, spare, strict=False))
    return tuple(instead.get(index, index) for index in asked)


def as_granted(places: Sequence[Placement], grants: Sequence[LeaseGrant]) -> tuple[Placement, ...]:
    """Return the placements with the GPUs, interfaces and addresses that the nodes have granted.

    Ports for RDMA were chosen on the machines before. Where one is another now, no node uses its:
    NCCL waits for ever if some do and others do not.
    """
    pairs = [*zip(places, grants, strict=True)]
    has_moved = any(_is_elsewhere(place, grant) for place, grant in pairs)
    return tuple(
        msgspec.structs.replace(
            place,
            interface=grant.interface or place.interface,
            address=grant.address,
            gpus=_gpus(place, grant),
            rdma_devices=() if has_moved else place.rdma_devices,
            rdma_gid_index=None if has_moved else place.rdma_gid_index,
        )
        for place, grant in pairs
    )


def _is_elsewhere(place: Placement, grant: LeaseGrant) -> bool:
    return grant.address != place.address or grant.interface not in {"", place.interface}


def _gpus(place: Placement, grant: LeaseGrant) -> tuple[int, ...]:
    granted = tuple(gpu.index for gpu in grant.gpus)
    # An older agent does not say which; of the same ones the order is the person's.
    is_known = len(granted) == len(place.gpus) and set(granted) != set(place.gpus)
    return granted if is_known else place.gpus
