"""Network cards: their links and their errors, below the interfaces that a job may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jupyter_mntrain.agent.machine.facts.hardware.gpu_setup import read_numa_node
from jupyter_mntrain.agent.machine.facts.hardware.link_settings import (
    LinkSettings,
    read_link_settings,
)
from jupyter_mntrain.model.records.doctor.hardware import NetworkCard
from jupyter_mntrain.model.records.node import InterfaceKind
from jupyter_mntrain.telemetry.interfaces import interface_kind
from jupyter_mntrain.telemetry.kernel_files import kernel_text

_SENT_OR_RECEIVED = ("rx_packets", "tx_packets")
_ERRORS = ("rx_errors", "tx_errors")
# Not rx_dropped: it also counts frames of protocols that this machine does not speak.
_MISSED = ("rx_missed_errors",)

MOST_CARDS = 64
CARD: InterfaceKind = "ethernet"

Ask = Callable[[str], LinkSettings | None]


def read_network_cards(
    sysfs: Path, before: Mapping[str, int] | None = None, ask: Ask = read_link_settings
) -> tuple[NetworkCard, ...]:
    """Read the cards of all interfaces that are up, and neither virtual nor of this machine only.

    Args:
        before: their errors when the reading began, from :func:`read_errors`.
        ask: a card for its link.
    """
    cards = [
        _read(card, interface.name, (before or {}).get(card.name), ask)
        for interface in _interfaces(sysfs)
        for card in _cards(interface)
    ]
    return tuple(cards[:MOST_CARDS])


def read_errors(sysfs: Path) -> dict[str, int]:
    """Errors of each card since boot."""
    return {
        card.name: _sum(card, _ERRORS + _MISSED)
        for interface in _interfaces(sysfs)
        for card in _cards(interface)
    }


def read_adapter_numa_nodes(sysfs: Path) -> dict[str, int]:
    """NUMA nodes of the adapters for InfiniBand or RoCE, where there are several."""
    adapters = sorted((sysfs / "class" / "infiniband").glob("*"))
    found = {one.name: read_numa_node(one / "device") for one in adapters}
    return {name: node for name, node in found.items() if node is not None}


def _interfaces(sysfs: Path) -> Iterator[Path]:
    for one in sorted((sysfs / "class" / "net").glob("*")):
        is_up = (
            kernel_text(one / "operstate") in ("up", "unknown")
            and kernel_text(one / "carrier") == "1"
        )
        # A card of a bond belongs to the bond.
        if is_up and not (one / "master").exists() and interface_kind(one.name, sysfs) == CARD:
            yield one


def _cards(interface: Path) -> list[Path]:
    """Those below a bridge, a bond or a VLAN; otherwise itself."""
    below = [interface.parent / one.name[len("lower_") :] for one in interface.glob("lower_*")]
    found = [card for one in sorted(below) if one.exists() for card in _cards(one)]
    return [one for one in found if (one / "device").exists()] or [interface]


def _read(card: Path, interface: str, before: int | None, ask: Ask) -> NetworkCard:
    link = ask(card.name) or LinkSettings()
    errors = _sum(card, _ERRORS + _MISSED)
    ups = kernel_text(card / "carrier_up_count")
    return NetworkCard(
        name=card.name,
        interface=interface,
        speed_mbit_per_s=link.speed_mbit_per_s,
        is_half_duplex=link.is_half_duplex,
        most_mbit_per_s=link.most,
        offered_mbit_per_s=link.offered,
        peer_offered_mbit_per_s=link.peer_offered,
        packets=_sum(card, _SENT_OR_RECEIVED),
        errors=errors,
        new_errors=0 if before is None else max(0, errors - before),
        came_up=int(ups) if ups.isdecimal() else None,
        numa_node=read_numa_node(card / "device"),
    )


def _sum(card: Path, names: tuple[str, ...]) -> int:
    counts = (kernel_text(card / "statistics" / name) for name in names)
    return sum(int(one) for one in counts if one.isdecimal())
