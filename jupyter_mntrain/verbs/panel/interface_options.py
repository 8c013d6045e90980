"""Interface options: the networks that a row can train over, with their speeds. Pure."""

from __future__ import annotations

from jupyter_mntrain.model.records.node import Interface, NodeInfo
from jupyter_mntrain.plan.interfaces import capacity_to
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import NodeChoice


def interface_options(info: NodeInfo, choice: NodeChoice) -> list[tuple[str, str | None]]:
    known: list[tuple[str, str | None]] = [
        (_interface_label(interface), interface.name)
        for interface in info.inventory.interfaces
        if interface.is_up and interface.addresses
    ]
    names = {name for _, name in known}
    if choice.interface is not None and choice.interface not in names:
        known.append((f"{choice.interface}, not available now", choice.interface))
    return known


def _interface_label(interface: Interface) -> str:
    capacity = capacity_to(interface)
    said = "this machine only" if interface.kind == "loopback" else "? Mbit/s"
    if capacity is not None:
        said = formats.bit_rate(capacity.bytes_per_s)
    elif interface.speed_mbit_per_s and interface.speed_mbit_per_s > 0:
        said = formats.bit_rate(interface.speed_mbit_per_s * 125_000)
    return f"{interface.name}, {said}"
