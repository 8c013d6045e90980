"""GPU setup: how NVIDIA's GPUs, their driver and their fabric are set up. Only asks.

Written from NVML's documentation and tested with recorded answers; it has not run on a card yet.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

from jupyter_mntrain.model.records.doctor.hardware import (
    ComputeMode,
    FabricState,
    GpuDriver,
    GpuSetup,
)
from jupyter_mntrain.telemetry.kernel_files import kernel_text

_NVIDIA: Final = "0x10de"
_GPU_CLASS: Final = "0x03"
"""PCI class of display controllers (``pci_ids.h``)."""

_COMPUTE_MODES: Final[dict[int, ComputeMode]] = {0: "default", 2: "prohibited", 3: "exclusive"}
_FABRIC_STATES: Final[dict[int, FabricState]] = {
    1: "not started",
    2: "in progress",
    3: "completed",
}
"""``nvml.h``: ``nvmlComputeMode_t``; ``NVML_GPU_FABRIC_STATE_…``, of which 0 is "not supported"."""

_FABRIC_CALLS: Final = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)
"""The second is for drivers before 545. Both fill a structure."""
_DEGRADED_BITS, _DEGRADED = 0x3, 1
"""``NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE``."""

_MOST_NVLINKS: Final = 18
"""``NVML_NVLINK_MAX_LINKS``."""
_ENABLED: Final = 1
"""``NVML_FEATURE_ENABLED``."""

_P2P_READ, _P2P_OK = 0, 0
"""``NVML_P2P_CAPS_INDEX_READ``, ``NVML_P2P_STATUS_OK``."""

_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_EXTENDED: Final = 0x100
"""Where extended capabilities begin in a device's configuration space (PCI Express, 7.6)."""
_ACS: Final = 0x0D
_ACS_REDIRECTS: Final = 0x4 | 0x8
"""P2P Request Redirect, and P2P Completion Redirect (``pci_regs.h``)."""
_MOST_CAPABILITIES: Final = 64

_FABRIC_MANAGER: Final = "nv-fabricmanager"[:15]
"""The kernel cuts names of processes."""


def read_gpu_driver(error: int | None, sysfs: Path, proc: Path) -> GpuDriver:
    """Read what belongs to NVIDIA's driver.

    Args:
        error: NVML's number of why it does not answer.
    """
    has_switches = any((proc / "driver" / "nvidia-nvswitch" / "devices").glob("*"))
    return GpuDriver(
        cards=sum(
            kernel_text(device / "vendor") == _NVIDIA
            and kernel_text(device / "class").startswith(_GPU_CLASS)
            for device in (sysfs / "bus" / "pci" / "devices").glob("*")
        ),
        error=error,
        has_switches=has_switches,
        has_fabric_manager=has_switches
        and any(kernel_text(one) == _FABRIC_MANAGER for one in proc.glob("[0-9]*/comm")),
    )


def read_gpu_setups(nvml: Any, indices: Iterable[int], sysfs: Path) -> tuple[GpuSetup, ...]:
    """Ask these cards; nothing without NVML.

    Args:
        nvml: the module ``pynvml``, or ``None``.
    """
    cards = tuple(indices)
    return () if nvml is None else tuple(_of_card(nvml, one, sysfs, cards) for one in cards)


def _of_card(nvml: Any, index: int, sysfs: Path, every: Collection[int]) -> GpuSetup:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        return GpuSetup(index=index, trouble=str(error))

    def told(call: str) -> Any:
        try:
            return getattr(nvml, call)(handle)
        except (nvml.NVMLError, AttributeError):  # an older driver, or an older library
            return None

    modes, persistent = told("nvmlDeviceGetMigMode"), told("nvmlDeviceGetPersistenceMode")
    fabric = _fabric(nvml, handle)
    device = _device(told("nvmlDeviceGetPciInfo"), sysfs)
    state = _FABRIC_STATES.get(fabric.state) if fabric is not None else None
    health = getattr(fabric, "healthMask", 0)
    return GpuSetup(
        index=index,
        name=name,
        is_split=bool(modes and modes[0]),
        is_persistent=None if persistent is None else bool(persistent),
        compute_mode=_COMPUTE_MODES.get(told("nvmlDeviceGetComputeMode")),
        pcie_width=told("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_most=told("nvmlDeviceGetMaxPcieLinkWidth"),
        power_limit_w=_watts(told("nvmlDeviceGetPowerManagementLimit")),
        power_default_w=_watts(told("nvmlDeviceGetPowerManagementDefaultLimit")),
        fabric=state,
        # It means something when the fabric manager is through.
        fabric_error=fabric.status if fabric is not None and state == "completed" else 0,
        is_fabric_slow=state is not None and health & _DEGRADED_BITS == _DEGRADED,
        numa_node=None if device is None else read_numa_node(device),
        nvlinks=_nvlinks(nvml, handle),
        reaches=_reached(nvml, handle, [one for one in every if one != index]),
        iommu="" if device is None else kernel_text(device / "iommu_group" / "type"),
        redirected_by=None if device is None else _redirecting(device),
    )


def _fabric(nvml: Any, handle: Any) -> Any:
    """What it says of its fabric of NVSwitches; ``None``: nothing."""
    for call, structure in _FABRIC_CALLS:
        make: Callable[[], Any] | None = getattr(nvml, structure, None)
        if make is None:
            continue
        found = make()
        try:
            getattr(nvml, call)(handle, ctypes.byref(found))
        except (nvml.NVMLError, AttributeError):
            continue
        return found
    return None


def _nvlinks(nvml: Any, handle: Any) -> int | None:
    """How many of its NVLinks are up; ``None`` if it has none."""
    states: list[int] = []
    for link in range(_MOST_NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except (nvml.NVMLError, AttributeError):  # it has fewer, or the library is older
            break
    return states.count(_ENABLED) if states else None


def _reached(nvml: Any, handle: Any, others: Iterable[int]) -> tuple[int, ...] | None:
    """The other cards whose memory it may read itself; ``None`` if the driver does not say."""
    found = []
    for other in others:
        try:
            peer = nvml.nvmlDeviceGetHandleByIndex(other)
            status = nvml.nvmlDeviceGetP2PStatus(handle, peer, _P2P_READ)
        except (nvml.NVMLError, AttributeError):
            return None
        if status == _P2P_OK:
            found.append(other)
    return tuple(found)


def _device(pci: Any, sysfs: Path) -> Path | None:
    """Where the kernel shows it."""
    if pci is None:
        return None
    # NVML has a domain of 8 digits, sysfs one of 4.
    address = str(pci.busId).lower()[-len("0000:01:00.0") :]
    return sysfs / "bus" / "pci" / "devices" / address


def _redirecting(device: Path) -> tuple[str, ...] | None:
    """Bridges above a device whose ACS redirects; ``None`` if one may not be read."""
    if not device.exists():
        return None
    found = []
    for bridge in device.resolve().parents:
        if not _PCI_ADDRESS.fullmatch(bridge.name):
            break
        control = _acs_control(bridge / "config")
        if control is None:
            return None
        if control & _ACS_REDIRECTS:
            found.append(bridge.name)
    return tuple(found)


def _acs_control(config: Path) -> int | None:
    """ACS control register of a bridge; 0 without one, ``None`` if it may not be read."""
    try:
        data = config.read_bytes()
    except OSError:
        return None
    if len(data) <= _EXTENDED:
        return None  # the kernel shows the rest to root only
    at = _EXTENDED
    for _ in range(_MOST_CAPABILITIES):
        header = int.from_bytes(data[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(data[at + 6 : at + 8], "little")
        at = header >> 20
        if at < _EXTENDED:
            break
    return 0


def read_numa_node(device: Path) -> int | None:
    """The NUMA node that a device is attached to. The kernel says -1 where there is only one."""
    found = kernel_text(device / "numa_node")
    return int(found) if found.isdecimal() else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
