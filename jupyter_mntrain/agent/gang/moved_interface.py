"""Moved interface: the one in the place of a job's former one, where it has another name."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Interface

from jupyter_mntrain.model.records.node import Interface

_ANY_PORT = 9


def source_toward(address: str) -> str | None:
    """The address from which this machine would send to another; nothing is sent."""
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
    """The interface that reaches the network on which the job has trained.

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
