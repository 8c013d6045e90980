"""Checks of NVIDIA's driver, of GPUs that do not answer, and of the fabric of NVSwitches."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.doctor.check import Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.hardware.hardware_check import HardwareCheck, chosen
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

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
        node: Examined,
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
        node: Examined,
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
                fix=f"on {node.name}: sudo reboot; if it does so again, check its seat, power and "
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

    def inspect(self, node: Examined, facts: MachineFacts, hardware: Hardware) -> Finding | None:
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
