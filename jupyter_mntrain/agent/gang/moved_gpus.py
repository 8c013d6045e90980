"""Moved GPUs: those in the place of a job's former ones, where an allocation gives others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from jupyter_mntrain.agent.gang.moved_interface import interface_now
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.sources.slots import SLOT_FILE


def is_of_allocation(node: LocalNode) -> bool:
    """Whether a scheduler gave the node, and may give another machine in its place."""
    return (node.state.path / SLOT_FILE).exists()


def as_it_is_now(node: LocalNode, request: LeaseRequest) -> LeaseRequest:
    """The request for a further attempt, with the interface and GPUs that the node has now.

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
    """As many GPUs as were asked for: those that are there stay, others stand in for the rest.

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
    """The placements with what their nodes granted: GPUs, interfaces and addresses that may have
    changed.

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
