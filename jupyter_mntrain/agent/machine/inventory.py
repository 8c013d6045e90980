"""Inventory: reads this node's hardware and software; caches only what cannot change."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import msgspec
import psutil

from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.machine.link_book import LinkBook
from jupyter_mntrain.agent.machine.rdma import read_rdma_ports
from jupyter_mntrain.agent.machine.versions import read_versions
from jupyter_mntrain.model.records.node import Inventory, Versions
from jupyter_mntrain.telemetry.gpus import GpuReader


class InventoryReader:
    """Reads the node's inventory.

    Args:
        python: interpreter that ranks run with; its packages define the node's versions.
        links: measured or given link capacities.
    """

    def __init__(self, python: str, links: LinkBook) -> None:
        self.gpus = GpuReader(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._links = links
        self._versions = read_versions(python, self.gpus.driver)
        self._cpu_model = _cpu_model()

    @property
    def versions(self) -> Versions:
        """As of the agent's start; the driver may have been loaded since."""
        return msgspec.structs.replace(self._versions, driver=self.gpus.driver)

    def read(self) -> Inventory:
        memory, gpus = psutil.virtual_memory(), self.gpus.read()
        return Inventory(
            hostname=socket.gethostname(),
            cpu_model=self._cpu_model,
            cpu_count=usable_cpus(),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            interfaces=self._links.attach(read_interfaces()),
            gpus=gpus,
            gpu_note=self.gpus.note if gpus else _not_offered(self.versions) or self.gpus.note,
            versions=self.versions,
            rdma_ports=read_rdma_ports(),
        )


def _not_offered(versions: Versions) -> str | None:
    """Whose GPUs torch was built for, if not NVIDIA's; as its version says."""
    build = (versions.torch or "").partition("+")[2]
    for prefix, cards in (("rocm", "AMD GPUs (ROCm)"), ("xpu", "Intel GPUs (XPU)")):
        if build.startswith(prefix):
            return f"{cards} are not offered, and torch {versions.torch} is built for them"
    return None


def usable_cpus() -> int:
    """Number of cores that this process may run on, respecting its CPU affinity."""
    return len(os.sched_getaffinity(0))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
