"""RDMA: finds this machine's InfiniBand and RoCE adapters, and whether they access GPU memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path

from jupyter_mntrain.model.records.node import GpuDirect, RdmaPort, RoceGid
from jupyter_mntrain.telemetry.interfaces import SYSFS
from jupyter_mntrain.telemetry.kernel_files import kernel_text

# GPUDirect RDMA: how an adapter for InfiniBand or RoCE reaches the memory of GPUs, if it does.


PROC = Path("/proc")
DMA_BUF_KERNEL = (5, 12)
_OPEN = "Open Kernel Module"


def read_gpu_direct(
    sysfs: Path = SYSFS, proc: Path = PROC, release: str | None = None
) -> GpuDirect | None:
    """Return how NCCL can use GPUDirect; ``None`` if not, so that all goes through host memory.

    dma-buf needs Linux 5.12 and NVIDIA's open kernel modules (NVIDIA's GPUDirect RDMA and NCCL
    documentation); the module nvidia-peermem works with both kinds of drivers.

    Args:
        release: of the kernel; default: this one's.
    """
    if (sysfs / "module" / "nvidia_peermem").is_dir():
        return "nvidia-peermem"
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release if release is None else release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < DMA_BUF_KERNEL:
        return None
    try:
        driver = (proc / "driver" / "nvidia" / "version").read_text()
    except OSError:
        return None
    return "dma-buf" if _OPEN in driver else None


# RDMA ports: reads this machine's InfiniBand and RoCE adapters.


DEV = Path("/dev")
ROCE_V2 = "RoCE v2"
_OFF = "is switched off by NCCL_IB_DISABLE=1 in the agent's environment"
MOST_EMPTY = 8
"""Empty entries in a row after which the rest of a table of GIDs is not read: it has up to 256, and
the kernel fills them from the first."""


def read_rdma_ports(
    sysfs: Path = SYSFS, dev: Path = DEV, *, is_off: bool = False
) -> tuple[RdmaPort, ...]:
    """Read all ports, including those that are down; none if the kernel has no adapter.

    Args:
        sysfs: mount point of sysfs.
        dev: directory of device nodes.
        is_off: NCCL is told not to use them, in the environment that ranks inherit.
    """
    off = _OFF if is_off else None
    adapters = sorted((sysfs / "class" / "infiniband").glob("*"))
    return tuple(
        _read_port(adapter, port, off or _why_closed(adapter, dev))
        for adapter in adapters
        for port in sorted((adapter / "ports").glob("*"), key=lambda one: int(one.name))
    )


def _read_port(adapter: Path, port: Path, obstacle: str | None) -> RdmaPort:
    is_infiniband = kernel_text(port / "link_layer") == "InfiniBand"
    return RdmaPort(
        device=adapter.name,
        number=int(port.name),
        link="InfiniBand" if is_infiniband else "RoCE",
        # Its number stands before the name.
        state=kernel_text(port / "state").rpartition(" ")[2] or "unknown",
        # The upper half of a GID is the prefix of its subnet.
        subnet=kernel_text(port / "gids" / "0")[:19] if is_infiniband else "",
        gids=() if is_infiniband else tuple(_roce_gids(port)),
        obstacle=obstacle,
    )


def _roce_gids(port: Path) -> Iterator[RoceGid]:
    empty = 0
    for index in range(sum(1 for _ in (port / "gids").glob("*"))):
        gid = IPv6Address(kernel_text(port / "gids" / str(index)) or "::")
        empty = 0 if int(gid) else empty + 1
        if empty > MOST_EMPTY:
            return
        if gid.ipv4_mapped and kernel_text(port / "gid_attrs" / "types" / str(index)) == ROCE_V2:
            yield RoceGid(index=index, address=str(gid.ipv4_mapped))


def _why_closed(adapter: Path, dev: Path) -> str | None:
    """Return why ranks cannot open an adapter: containers may lack the device that sysfs shows."""
    names = [one.name for one in (adapter / "device" / "infiniband_verbs").glob("uverbs*")]
    if not names:
        return "has no uverbs device: the module ib_uverbs is not loaded"
    node = dev / "infiniband" / names[0]
    if not node.exists():
        return f"has no {node} here"
    return None if os.access(node, os.R_OK | os.W_OK) else f"has a {node} that may not be opened"
