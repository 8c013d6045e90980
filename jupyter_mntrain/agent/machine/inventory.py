"""Inventory: reads this node's hardware and software; caches only what cannot change."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.devices.limits import cores, usable_cpus, usable_memory
from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.machine.links.link_book import LinkBook
from jupyter_mntrain.agent.machine.rdma import read_gpu_direct, read_rdma_ports
from jupyter_mntrain.agent.machine.software.versions import as_loaded, read_installed, with_driver
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.node import Gpu, Inventory, Versions
from jupyter_mntrain.plan.software.gpu_builds import VENDORS
from jupyter_mntrain.telemetry.gpus import gpus_of, has_amd_gpu


class InventoryReader:
    """Reads the node's inventory.

    Args:
        python: interpreter that ranks run with; its packages define the node's versions.
        links: measured or given link capacities.
        devices: what was measured of them.
        loaded: tells what that interpreter loads; ``None`` if it was not asked yet.
    """

    def __init__(
        self,
        python: str,
        links: LinkBook,
        devices: DeviceBook,
        loaded: Callable[[], LoadedSoftware | None] = lambda: None,
    ) -> None:
        self._loaded = loaded
        self.gpus = gpus_of(os.environ)
        self._links = links
        self._devices = devices
        self._installed = read_installed(python, self.gpus.driver)
        self._cpu_model = read_cpu_model()
        self._has_amd_gpu = has_amd_gpu()

    @property
    def versions(self) -> Versions:
        """Versions as of the agent's start. A driver or compiler may have been added since."""
        versions = as_loaded(self._installed.with_tools(), self._loaded())
        return with_driver(versions, self.gpus.driver)

    def read(self) -> Inventory:
        memory, gpus = usable_memory(), self.gpus.read()
        versions = self.versions
        return Inventory(
            hostname=socket.gethostname(),
            cpu_model=self._cpu_model,
            cpu_count=usable_cpus(),
            memory_total_bytes=memory.total_bytes,
            memory_available_bytes=memory.available_bytes,
            interfaces=self._links.attach(read_interfaces()),
            gpus=gpus,
            gpu_note=self._gpu_note(gpus, versions),
            versions=versions,
            rdma_ports=read_rdma_ports(is_off=os.environ.get("NCCL_IB_DISABLE") == "1"),
            gpu_direct=read_gpu_direct(),
            devices=self._devices.valid(self._cpu_model, cores(), gpus, versions.torch),
            has_amd_gpu=self._has_amd_gpu,
        )

    def _gpu_note(self, gpus: Sequence[Gpu], versions: Versions) -> str | None:
        """Return why there are no GPUs, or fewer than the machine has."""
        if not gpus and (cards := VENDORS.get(versions.built_for or "")) is not None:
            return f"{cards} are not offered, and torch {versions.torch} is built for them"
        if not gpus and self._has_amd_gpu:
            return f"it has an AMD GPU, and {VENDORS['ROCm']} are not offered"
        return self.gpus.note


def read_cpu_model() -> str:
    """Return the name of the processor, or of its architecture."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
