"""Checks of how GPUs are set up: who may compute on them, their power, and their PCIe link."""

from __future__ import annotations

from collections import Counter

from jupyter_mntrain.doctor.check import Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.hardware.hardware_check import HardwareCheck, chosen
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

LEAST_PCIE_SHARE = tunables.ratio("doctor.least_pcie_share")
LEAST_POWER_SHARE = tunables.ratio("doctor.least_power_share")


class GpuComputeMode(HardwareCheck):
    """That a GPU is not persistent is a word only: the agent keeps its driver loaded."""

    id = "gpu-compute-mode"
    title = "Compute mode"
    looks_at = "whether the ranks may compute on the GPUs; persistence"

    def inspect(self, node: Examined, facts: MachineFacts, hardware: Hardware) -> Finding | None:
        gpus = chosen(node, [one for one in hardware.gpus if one.compute_mode is not None])
        if not gpus:
            return None
        prohibited = [one.index for one in gpus if one.compute_mode == "prohibited"]
        if prohibited:
            name = numbered("GPU", prohibited)
            return self._refused(node, prohibited, f"nobody may compute on {name}", "prohibited")
        ranks = Counter(node.participant.gpus if node.participant is not None else ())
        busy = {one.index for one in facts.gpus if one.others} - node.info.leased_gpus
        taken = [
            one.index
            for one in gpus
            if one.compute_mode == "exclusive" and (one.index in busy or ranks[one.index] > 1)
        ]
        if taken:
            cause = f"only one process may compute on {numbered('GPU', taken)} at a time, and " + (
                "one already does" if busy & set(taken) else "several ranks would"
            )
            return self._refused(node, taken, cause, "exclusive, taken")
        off = [one.index for one in gpus if one.is_persistent is False]
        modes = ", ".join(sorted({one.compute_mode or "" for one in gpus}))
        return self.passed(node, f"{modes}; persistence off" if off else modes)

    def _refused(self, node: Examined, gpus: list[int], cause: str, said: str) -> Finding:
        # Without a job it may be that nobody wants this GPU.
        return (self.slows if node.participant is None else self.stops)(
            node,
            said,
            Kind.GPU_TAKEN,
            cause=f"{cause}, by its compute mode",
            fix=f"on {node.name}: sudo nvidia-smi -i {','.join(map(str, gpus))} -c DEFAULT",
        )


class GpuPowerLimit(HardwareCheck):
    id = "gpu-power-limit"
    title = "Power limit"
    looks_at = "whether the power limit of GPUs is far below the default"
    is_for_launch = False

    def inspect(
        self,
        node: Examined,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        known = {
            one.index: (one.power_limit_w, one.power_default_w)
            for one in chosen(node, hardware.gpus)
            if one.power_limit_w and one.power_default_w
        }
        if not known:
            return None
        index, (limit_w, default_w) = min(known.items(), key=lambda one: one[1][0] / one[1][1])
        said = f"{limit_w:.0f} W" if limit_w == default_w else f"{limit_w:.0f} of {default_w:.0f} W"
        if limit_w >= LEAST_POWER_SHARE * default_w:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"GPU {index} may draw {limit_w:.0f} W, and {default_w:.0f} W by default",
            fix=f"on {node.name}: sudo nvidia-smi -i {index} -pl {default_w:.0f}",
        )


class GpuPcieLink(HardwareCheck):
    """The generation is not looked at: cards lower it while they are idle."""

    id = "gpu-pcie"
    title = "PCIe lanes"
    looks_at = "lanes of the GPUs' PCIe links, beside the most that each may have"
    is_for_launch = False

    def inspect(
        self,
        node: Examined,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        known = {
            one.index: (one.pcie_width, one.pcie_most)
            for one in chosen(node, hardware.gpus)
            if one.pcie_width and one.pcie_most
        }
        if not known:
            return None
        index, (width, most) = min(known.items(), key=lambda one: one[1][0] / one[1][1])
        said = f"{width} of {most}"
        if width >= LEAST_PCIE_SHARE * most:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"GPU {index} is connected by {width} lanes of PCIe, and could use {most}",
            fix=f"on {node.name}: put the card into another slot, and check its seat and its riser "
            "cable; sudo lspci -vv shows LnkSta",
        )
