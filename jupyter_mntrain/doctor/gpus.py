"""Checks of GPUs: driver, state, settings, peer access, and the CPU cores for their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from jupyter_mntrain.doctor.check import CheckedNode, Finding, HardwareCheck, NodeCheck, chosen
from jupyter_mntrain.doctor.hardware import FAULT_S
from jupyter_mntrain.model.failure.causes.gpus import SHARE_OF_OTHERS
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import agreeing, duration_text, numbered, rough_size
from jupyter_mntrain.model.records.doctor.hardware import GpuSetup, Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.text.foreign import shown_line

# NVIDIA's driver, of GPUs that do not answer, and of the fabric of NVSwitches.


DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
VERSION_MISMATCH: Final = 18
"""``nvmlReturn_t``. Images for GPUs have the library on machines that have no GPU, too."""


class WorkingDriver(HardwareCheck):
    id = "gpu-driver"
    title = "GPU driver"
    looks_at = "whether NVIDIA's driver answers, and has the version of its library"

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        driver = hardware.gpu_driver
        versions = node.info.inventory.versions
        if driver.error is None:
            return self.passed(node, versions.driver) if versions.driver else None
        is_absent = driver.error in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
        if is_absent and not driver.cards:
            return None
        cause = f"NVIDIA's driver does not answer (error {driver.error})"
        fix = f"on {node.name}: see nvidia-smi and sudo dmesg | grep NVRM; restart the machine"
        if is_absent:
            cause = "it has NVIDIA GPUs, and their driver is not loaded here"
            fix = f"on {node.name}: sudo modprobe nvidia; start a container with --gpus all"
        elif driver.error == VERSION_MISMATCH:
            cause = (
                "NVIDIA's driver was updated, and the old one is still loaded: the versions of "
                "driver and library differ"
            )
            fix = f"on {node.name}: sudo reboot"
        said = "versions differ" if driver.error == VERSION_MISMATCH else "does not answer"
        # A job that wants no GPU of this node can do without.
        is_wanted = not is_absent and (node.participant is None or node.participant.gpus)
        judge = self.stops if is_wanted else self.slows
        return judge(node, said, Kind.GPU_ERROR, cause=cause, fix=fix)


class AnsweringGpus(HardwareCheck):
    id = "gpu-answers"
    title = "GPUs"
    looks_at = "whether each GPU answers, and is not split into MIG instances"

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        if not hardware.gpus:
            return None
        silent = [one for one in hardware.gpus if one.trouble]
        if silent:
            name = numbered("GPU", [one.index for one in silent])
            is_wanted = node.participant is not None and chosen(node, silent)
            return (self.stops if is_wanted else self.slows)(
                node,
                name,
                Kind.GPU_LOST,
                cause=f"{name} does not answer: {silent[0].trouble}",
                fix=f"on {node.name}: sudo reboot; if it happens again, check its seat, power and "
                "cooling",
            )
        split = [one.index for one in hardware.gpus if one.is_split]
        if len(split) < len(hardware.gpus):
            names = sorted({one.name for one in hardware.gpus if not one.is_split})
            more = f", {numbered('GPU', split)} split" if split else ""
            return self.passed(node, f"{len(hardware.gpus)} × {' and '.join(names)}{more}")
        return self.slows(
            node,
            "split",
            Kind.NO_GPU,
            cause="all of its GPUs are split into MIG instances, which mntrain does not use",
            fix=f"on {node.name}: sudo nvidia-smi -mig 0",
        )


class Fabric(HardwareCheck):
    id = "gpu-fabric"
    title = "NVLink fabric"
    looks_at = "on machines with NVSwitches, whether the fabric manager has set them up"

    def inspect(self, node: CheckedNode, facts: MachineFacts, hardware: Hardware) -> Finding | None:
        whole = [one for one in hardware.gpus if not one.is_split]
        gpus = chosen(node, [one for one in whole if one.fabric is not None])
        driver = hardware.gpu_driver
        version = node.info.inventory.versions.driver
        fix = (
            f"on {node.name}: sudo systemctl restart nvidia-fabricmanager; its version must be the "
            f"driver's{f', {version}' if version else ''}"
        )
        if waiting := [one.index for one in gpus if one.fabric == "in progress"]:
            return self.slows(
                node,
                "in progress",
                Kind.GPU_ERROR,
                cause=f"{numbered('GPU', waiting)} is still being joined to the fabric of "
                "NVSwitches: until that is done, CUDA and NCCL fail to start there",
                fix="wait a minute, which it takes after a start, and look again; if it does not "
                f"end, {fix}",
            )
        if apart := [one for one in gpus if one.fabric != "completed" or one.fabric_error]:
            state = apart[0].fabric or ""
            said = f"error {apart[0].fabric_error}" if state == "completed" else state
            return self.stops(
                node,
                said,
                Kind.GPU_ERROR,
                cause=f"{numbered('GPU', [one.index for one in apart])} cannot use the fabric of "
                f"NVSwitches ({said}): CUDA and NCCL fail to start, or hang",
                fix=fix,
            )
        if slow := [one.index for one in gpus if one.is_fabric_slow]:
            return self.slows(
                node,
                "reduced",
                Kind.SLOW_RANK,
                cause=f"{numbered('GPU', slow)} has less bandwidth in the fabric of NVSwitches "
                "than it should",
                fix=f"on {node.name}: see nvidia-smi -q and nvidia-smi nvlink -s; reset the "
                "machine's GPUs",
            )
        if gpus:
            return self.passed(node, "completed")
        # GPUs before H100 do not tell. A container does not see the machine's service.
        if not driver.has_switches or facts.container or not chosen(node, whole):
            return None
        if driver.has_fabric_manager:
            return self.passed(node, "manager runs")
        return self.stops(
            node,
            "no manager",
            Kind.GPU_ERROR,
            cause="the fabric manager does not run, and its GPUs are joined by NVSwitches: CUDA "
            "and NCCL fail to start, or hang",
            fix=fix,
        )


# How GPUs are now: errors, clocks, and other processes that use them.


UNSEEN_SHARE: Final = 0.1
UNSEEN_BYTES: Final = 2 << 30
"""Memory held by a desktop and the driver itself, neither of which is listed."""

BY_PROGRAMS: Final = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
"""Xid errors caused by a program's own fault or end (NVIDIA's documentation of Xid errors)."""
REPAIRED: Final = frozenset({63, 92, 94, 154})
"""Those that the driver has dealt with; ``gpu-memory-errors`` says what is left to do."""

NORMAL: Final = "power limit"
"""A busy card that keeps to it runs at its sustained clock."""


class XidErrors(HardwareCheck):
    id = "gpu-xid"
    title = "Xid errors"
    looks_at = "errors of GPUs in the kernel's log, except for those that programs make"

    def inspect(
        self,
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        if hardware.kernel is None or not hardware.gpus:
            return None
        found = [one for one in hardware.kernel if one.kind == "GPU" and one.xid is not None]
        grave = [
            one for one in found if one.xid not in BY_PROGRAMS | REPAIRED and one.age_s < FAULT_S
        ]
        if not grave:
            numbers = sorted({one.xid for one in found if one.xid is not None})
            return self.passed(node, f"{numbered('Xid', numbers)}, passed" if numbers else "none")
        last = grave[-1]
        return self.slows(
            node,
            f"Xid {last.xid}",
            Kind.GPU_ERROR,
            cause=f"the driver has logged an error of a GPU, Xid {last.xid}, "
            f"{duration_text(last.age_s)} ago: {shown_line(last.line, 120)}",
            fix=f"on {node.name}: sudo reboot; if it happens again, replace the card or the "
            "driver; https://docs.nvidia.com/deploy/xid-errors says what the number means",
        )


class GpuMemoryErrors(NodeCheck):
    id = "gpu-memory-errors"
    title = "GPU memory"
    looks_at = "errors that ECC could not correct, and memory that waits to be replaced"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        gpus = chosen(node, [one for one in facts.gpus if not one.trouble])
        if not gpus:
            return None
        failed = [one for one in gpus if one.uncorrected_errors or one.repairs_pending]
        if not failed:
            has_ecc = any(one.uncorrected_errors is not None for one in gpus)
            return self.passed(node, "no errors" if has_ecc else "no ECC")
        count = sum(one.uncorrected_errors or 0 for one in failed)
        cause = f"{count} uncorrectable errors" if count else "memory that waits to be replaced"
        name = numbered("GPU", [one.index for one in failed])
        return self.slows(
            node,
            cause,
            Kind.GPU_MEMORY_ERROR,
            cause=f"the memory of {name} has {cause}: ranks may crash",
            fix=f"on {node.name}, while nobody uses it: sudo nvidia-smi --gpu-reset -i "
            f"{failed[0].index}, or restart the machine; if it happens again, replace the card",
        )


class GpuClocks(NodeCheck):
    id = "gpu-clocks"
    title = "GPU clocks"
    looks_at = "what lowers the clocks of GPUs now, except for their power limit"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        gpus = chosen(node, [one for one in facts.gpus if not one.trouble])
        if not gpus:
            return None
        hottest = max((one.temperature_c or 0 for one in gpus), default=0)
        slowed = {one.index: [why for why in one.slowed_by if why != NORMAL] for one in gpus}
        slowed = {index: whys for index, whys in slowed.items() if whys}
        if not slowed:
            return self.passed(node, f"{hottest:.0f} °C" if hottest else "not lowered")
        why = ", ".join(sorted({why for whys in slowed.values() for why in whys}))
        return self.slows(
            node,
            why,
            Kind.SLOW_RANK,
            cause=f"the clocks of {numbered('GPU', sorted(slowed))} are lowered: {why}; "
            f"{hottest:.0f} °C",
            fix=f"on {node.name}: check its fans, the air around it and its power cables; "
            "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
        )


class GpuUsers(NodeCheck):
    id = "gpu-users"
    title = "GPU memory free"
    looks_at = "other processes that hold memory of GPUs, except for jobs of this cluster"
    is_for_launch = False

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        gpus = [one for one in chosen(node, facts.gpus) if one.memory_bytes]
        used = {one.index: one.memory_used_bytes for one in node.info.inventory.gpus}
        free = [one for one in gpus if one.index not in node.info.leased_gpus]
        if not free:
            return None
        for one in free:
            total, held = one.memory_bytes or 0, used.get(one.index, 0)
            users = [
                str(process)
                for process in one.others
                if (process.memory_bytes or held) >= SHARE_OF_OTHERS * total
            ]
            if not users and held <= max(UNSEEN_BYTES, UNSEEN_SHARE * total):
                continue
            who = " and ".join(users) or "a desktop, or a process of another container,"
            fix = f"on {node.name}: end it, or choose another GPU; nvidia-smi lists the processes"
            return self.slows(
                node,
                f"{rough_size(held)} used",
                Kind.GPU_TAKEN,
                cause=f"{who} holds memory of GPU {one.index}: {rough_size(held)} of "
                f"{rough_size(total)} are used",
                fix=fix,
            )
        return self.passed(node, "yes")


# How GPUs are set up: who may compute on them, their power, and their PCIe link.


LEAST_PCIE_SHARE = 0.3
"""A PCIe link with a smaller share of its lanes than this is a wrong slot or a bad contact: two
cards in an ordinary machine have half of them."""
LEAST_POWER_SHARE = 0.7
"""A power limit below this share of the default slows a GPU; owners lower it by 20 % for less
noise."""


class GpuComputeMode(HardwareCheck):
    """Check of the compute mode.

    Persistence mode is only mentioned: the agent keeps the driver loaded.
    """

    id = "gpu-compute-mode"
    title = "Compute mode"
    looks_at = "whether the ranks may compute on the GPUs; persistence"

    def inspect(self, node: CheckedNode, facts: MachineFacts, hardware: Hardware) -> Finding | None:
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

    def _refused(self, node: CheckedNode, gpus: list[int], cause: str, said: str) -> Finding:
        # Without a job, this GPU may not be needed.
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
        node: CheckedNode,
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
            cause=f"GPU {index} may draw {limit_w:.0f} W; its default is {default_w:.0f} W",
            fix=f"on {node.name}: sudo nvidia-smi -i {index} -pl {default_w:.0f}",
        )


class GpuPcieLink(HardwareCheck):
    """Check of the PCIe link's width. Its generation is not checked: idle cards lower it."""

    id = "gpu-pcie"
    title = "PCIe lanes"
    looks_at = "lanes of the GPUs' PCIe links, compared with the most that each may have"
    is_for_launch = False

    def inspect(
        self,
        node: CheckedNode,
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


# A node's GPUs among themselves: whether they read each other's memory, and what is in
# the way of that.
#
# Between cards without NVLink that goes over PCIe. Where an IOMMU translates addresses, or bridges
# redirect them (ACS), the driver may still say that it works: then NCCL hangs at the first
# collective, or copies wrong values (CUDA programming guide, "IOMMU on Linux"; NCCL user guide,
# troubleshooting, "PCI Access Control Services"; nccl#2079, nccl-tests#117).


P2P_DISABLE = "NCCL_P2P_DISABLE"

Peers = Literal["alone", "unknown", "none", "direct", "obstructed"]
"""``none``: the driver says that no card reads another's memory; ``unknown``: not all is known that
could be in the way.
"""


def peers_among(cards: Sequence[GpuSetup]) -> Peers:
    """Return how these GPUs of one node reach each other."""
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
    """Return what keeps GPUs from reading each other's memory over PCIe; empty if nothing does."""
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
        node: CheckedNode,
        facts: MachineFacts,  # noqa: ARG002 - hardware's
        hardware: Hardware,
    ) -> Finding | None:
        cards = chosen(node, hardware.gpus)
        found = peers_among(cards)
        if found == "alone":
            return None
        if found != "obstructed":
            said = {"none": "through the host", "direct": "directly"}.get(found, "unknown")
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


# Processor cores against ranks.


class CoresForRanks(NodeCheck):
    id = "cores"
    title = "Cores"
    looks_at = (
        "processor cores that a node may use, compared with its ranks: those of a job, or its GPUs"
    )
    is_for_launch = False

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
        gpus = node.info.inventory.gpus
        ranks = node.participant.nproc if node.participant is not None else max(1, len(gpus))
        cores = facts.processors.cores
        said = f"{cores:g} for {ranks} rank{agreeing(range(ranks), '', 's')}"
        # A quota of control groups may be a little less than a core.
        if round(cores) >= ranks or ranks == 1:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"{ranks} ranks share {cores:g} cores: each needs one even to keep a GPU busy",
            fix=f"use fewer ranks on {node.name}, or allow more cores: docker run --cpus, "
            "CPUQuota= of the agent's service, or --cpus-per-task of SLURM",
        )
