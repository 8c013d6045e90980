"""Checks of how GPUs are now: errors, clocks, and other processes that use them."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.hardware.hardware_check import HardwareCheck, chosen
from jupyter_mntrain.doctor.hardware.kernel_log import FAULT_S
from jupyter_mntrain.model.failure.causes.gpus import SHARE_OF_OTHERS
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import duration_text, numbered, rough_size
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.text.foreign import shown_line

UNSEEN_SHARE: Final = 0.1
UNSEEN_BYTES: Final = 2 << 30
"""What a desktop holds, and the driver itself; neither is listed."""

BY_PROGRAMS: Final = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
"""Xid errors that a program's own fault or end makes (NVIDIA's documentation of Xid errors)."""
REPAIRED: Final = frozenset({63, 92, 94, 154})
"""Those that the driver has dealt with; ``gpu-memory-errors`` says what is left to do."""

NORMAL: Final = "power limit"
"""A busy card that keeps to it runs at its sustained clock."""


class XidErrors(HardwareCheck):
    id = "gpu-xid"
    title = "Xid errors"
    looks_at = "errors of GPUs in the kernel's log, but for those that programs make"

    def inspect(
        self,
        node: Examined,
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
            fix=f"on {node.name}: sudo reboot; if it comes again, replace the card or the driver; "
            "https://docs.nvidia.com/deploy/xid-errors says what the number means",
        )


class GpuMemoryErrors(NodeCheck):
    id = "gpu-memory-errors"
    title = "GPU memory"
    looks_at = "errors that ECC could not correct, and memory that waits to be replaced"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
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
            f"{failed[0].index}, or restart the machine; if it comes again, replace the card",
        )


class GpuClocks(NodeCheck):
    id = "gpu-clocks"
    title = "GPU clocks"
    looks_at = "what lowers the clocks of GPUs now, but for their power limit"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
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
    looks_at = "other processes that hold memory of GPUs, but for jobs of this cluster"
    is_for_launch = False

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
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
