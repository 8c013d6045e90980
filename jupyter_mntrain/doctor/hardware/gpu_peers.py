"""Check of a node's GPUs among themselves: whether they read each other's memory, and what is in
the way of that.

Between cards without NVLink that goes over PCIe. Where an IOMMU translates addresses, or bridges
redirect them (ACS), the driver may still say that it works: then NCCL hangs at the first
collective, or copies wrong values (CUDA programming guide, "IOMMU on Linux"; NCCL user guide,
troubleshooting, "PCI Access Control Services"; nccl#2079, nccl-tests#117).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jupyter_mntrain.doctor.check import Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.hardware.hardware_check import HardwareCheck, chosen
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.doctor.hardware import GpuSetup, Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

P2P_DISABLE = "NCCL_P2P_DISABLE"

Peers = Literal["alone", "unknown", "none", "direct", "obstructed"]
"""``none``: the driver says that no card reads another's memory; ``unknown``: not all is known that
could be in the way.
"""


def peers_among(cards: Sequence[GpuSetup]) -> Peers:
    """How these cards of one node reach each other."""
    there = [one for one in cards if not one.trouble and not one.is_split]
    if len(there) < 2:
        return "alone"
    if any(one.reaches is None for one in there):
        return "unknown"
    indices = {one.index for one in there}
    if not any(indices & set(one.reaches or ()) for one in there):
        return "none"
    if all(one.nvlinks for one in there):
        return "direct"
    if obstacle(there):
        return "obstructed"
    return "unknown" if any(one.redirected_by is None for one in there) else "direct"


def obstacle(cards: Sequence[GpuSetup]) -> str:
    """What is in the way of cards that read each other's memory over PCIe; empty if nothing is."""
    bridges = sorted({bridge for one in cards for bridge in one.redirected_by or ()})
    if bridges:
        return f"ACS of {bridges[0]} redirects it"
    translated = sorted({one.iommu for one in cards if one.iommu.startswith("DMA")})
    return f"the IOMMU translates it ({translated[0]})" if translated else ""


class GpuPeers(HardwareCheck):
    id = "gpu-peers"
    title = "GPUs among themselves"
    looks_at = (
        "whether GPUs of a node read each other's memory (as nvidia-smi topo -p2p), and whether "
        "ACS or the IOMMU is in the way of that"
    )

    def inspect(
        self,
        node: Examined,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        cards = chosen(node, hardware.gpus)
        found = peers_among(cards)
        if found == "alone":
            return None
        if found != "obstructed":
            said = {"none": "by way of the host", "direct": "directly"}.get(found, "not told")
            return self.passed(node, said)
        if node.variables.get(P2P_DISABLE) == "1":
            return self.passed(node, f"{P2P_DISABLE}=1")
        return self.slows(
            node,
            "obstructed",
            Kind.NCCL,
            cause=f"{numbered('GPU', [one.index for one in cards])} read each other's memory over "
            f"PCIe, and {obstacle(cards)}: NCCL may hang there, or copy wrong values",
            fix=f"try it: mntrain bench {node.name}:{len(cards)}; if that hangs, launch with --env "
            f"{P2P_DISABLE}=1, or switch ACS and the IOMMU off in its BIOS (or boot with iommu=pt)",
        )
