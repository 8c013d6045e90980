"""GPUDirect RDMA: how an adapter for InfiniBand or RoCE reaches the memory of GPUs, if it does."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jupyter_mntrain.model.records.node import GpuDirect
from jupyter_mntrain.telemetry.interfaces import SYSFS

PROC = Path("/proc")
DMA_BUF_KERNEL = (5, 12)
_OPEN = "Open Kernel Module"


def read_gpu_direct(
    sysfs: Path = SYSFS, proc: Path = PROC, release: str | None = None
) -> GpuDirect | None:
    """Return what NCCL can use; ``None``: nothing, so all goes through the host's memory.

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
