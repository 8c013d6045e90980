"""Checklists that people go through by hand before they trust several nodes, and what does it here.

They are those of guides for NCCL on rented machines, of Forgather's guide for several machines, and
of what a vendor lets itself be accepted by.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Item(NamedTuple):
    """One point of a checklist.

    Args:
        checks: ids of checks of the doctor.
        besides: what else does it, or why it is not offered.
    """

    point: str
    checks: tuple[str, ...] = ()
    besides: str = ""


CHECKLISTS: tuple[Item, ...] = (
    Item("MN1: fabric manager runs on every node, of the driver's version", ("gpu-fabric",)),
    Item(
        "MN2: NCCL uses the right network card, not docker0, loopback or a slow one",
        ("shared-network", "interface-names", "adapter-names", "route"),
        "a launch names the interface itself, and counters show afterward which one is used",
    ),
    Item(
        "MN3: a dead rank is not hidden for 30 minutes",
        (),
        "a stall is named after seconds, with the rank ([faults](faults.md))",
    ),
    Item("MN4: one MTU end to end (ping -M do -s 8972)", ("path-mtu",)),
    Item(
        "MN5: a restart goes on from a checkpoint",
        (),
        "the built-in trainer always does; a script that begins at step 1 again is named "
        "([own scripts](own_scripts.md))",
    ),
    Item("MN6: elastic Horovod pauses below its minimum", (), "Horovod is not offered"),
    Item("Identical NCCL variables on all ranks", ("variables", "debug-variables")),
    Item(
        "RDMA: ports active, HCA, GID, peer memory, locked memory",
        ("rdma-ports", "adapter-names", "gpu-direct", "locked-memory"),
    ),
    Item(
        "First launch with NCCL_DEBUG=INFO: which device does each rank use?",
        (),
        "`mntrain bench` reads it and names a silent fall-back to TCP",
    ),
    Item(
        '"Mismatched NCCL version detected": same torch and NCCL on all nodes',
        ("nccl-loaded", "torch-version", "torch-import"),
        "a launch with mixed versions is refused",
    ),
    Item(
        "All nodes reach each other on the required ports",
        ("reachable", "rendezvous-port", "port-range", "address-twice", "subnet-mask"),
    ),
    Item("Host names and reverse DNS", ("host-name", "reverse-dns")),
    Item(
        "Test with CUDA_LAUNCH_BLOCKING=1",
        ("debug-variables",),
        "left on by mistake it is named; `--env CUDA_LAUNCH_BLOCKING=1` sets it for one job",
    ),
    Item(
        "Loading a model over the network takes minutes",
        ("job-paths",),
        "`mntrain push` brings it to every node once ([files](files.md))",
    ),
    Item("FileNotFoundError: model.safetensors, the index without weights", ("whole-model",)),
    Item("The same data and model on every node", ("same-files", "job-paths", "user-id")),
    Item(
        "GPUs are free, cool, without memory errors, in the right mode",
        (
            *("gpu-driver", "gpu-answers", "gpu-xid", "gpu-memory-errors", "gpu-users"),
            *("gpu-clocks", "gpu-power-limit", "gpu-pcie", "gpu-compute-mode", "cuda-start"),
        ),
    ),
    Item(
        "Disks, memory, shared memory, limits, containers with an init",
        (
            *("disk-space", "writable-paths", "host-memory", "shared-memory", "open-files"),
            *("core-files", "first-process"),
        ),
    ),
    Item(
        "Accepted: RDMA is in use, at or near line rate",
        ("rdma-ports", "measured-link", "resent-packets"),
        "`mntrain bench` shows bus bandwidth beside the line rate",
    ),
    Item(
        "Accepted: scaling is close to linear",
        (),
        "`mntrain plan` predicts it, `compare` shows it",
    ),
    Item(
        "Accepted: a gang starts whole or stays pending",
        (),
        "leases are all or nothing ([architecture](architecture.md))",
    ),
    Item(
        "Accepted: a user launches without help",
        (),
        "`%mntrain launch`, the panel, and this check before each launch",
    ),
)


def checklist_table(items: Iterable[Item], title: str) -> str:
    lines = [f"| {title} | here |", "| --- | --- |"]
    for item in items:
        named = ", ".join(f"`{check}`" for check in item.checks)
        here = "; ".join(filter(None, (named, item.besides)))
        mark = "–" if here.endswith("not offered") else "✓"
        lines.append(f"| {item.point} | {mark} {here} |")
    return "\n".join(lines) + "\n"
