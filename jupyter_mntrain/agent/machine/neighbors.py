"""Neighbors: which machine the kernel sends to for an address of the network, by its ARP table."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from jupyter_mntrain.model.records.evidence import Neighbor

PROC = Path("/proc")
_COMPLETE = 0x2
"""``ATF_COM`` of ``linux/if_arp.h``: the MAC address is valid."""


def neighbors(
    interface: str, addresses: Collection[str], proc: Path = PROC
) -> tuple[Neighbor, ...]:
    """What the kernel knows of addresses; without those that it has not sent to lately.

    Ranks and interfaces have IPv4 addresses, so IPv6's table says nothing of them.
    """
    try:
        lines = (proc / "net" / "arp").read_text().splitlines()[1:]
    except OSError:
        return ()
    # IP address, HW type, Flags, HW address, Mask, Device
    rows = [words for line in lines if len(words := line.split()) == 6]
    return tuple(
        Neighbor(address=address, mac=mac if int(flags, 16) & _COMPLETE else "")
        for address, _, flags, mac, _, device in rows
        if device == interface and address in addresses
    )
