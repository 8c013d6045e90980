"""Hardware: how GPUs, network cards and drivers are set up, and what errors the kernel logged."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from jupyter_mntrain.agent.machine.kernel_log import kernel_records
from jupyter_mntrain.model.records.doctor.hardware import (
    ComputeMode,
    FabricState,
    Firmware,
    GpuDriver,
    GpuSetup,
    KernelFault,
    KernelFaultKind,
    NetworkCard,
)
from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.model.records.node import InterfaceKind
from jupyter_mntrain.telemetry.gpus import process_on_gpu
from jupyter_mntrain.telemetry.interfaces import interface_kind
from jupyter_mntrain.telemetry.kernel_files import kernel_text

# Link settings: what a network card has agreed on with the other end, asked of the kernel.


_SIOCETHTOOL: Final = 0x8946
_GLINKSETTINGS: Final = 0x4C
_HEADER: Final = struct.Struct("=IIBBBBBBBbBBBB28x")
"""``struct ethtool_link_settings`` of ``linux/ethtool.h``; three masks of modes follow."""
_MOST_WORDS: Final = 32
_UNKNOWN_SPEED: Final = 0xFFFFFFFF
_HALF: Final = 0

_MODES: Final[dict[int, tuple[int, ...]]] = {
    10: (0, 1, 92),
    100: (2, 3, 67, 90, 91),
    1000: (4, 5, 17, 41, 68),
    2500: (15, 47),
    5000: (48,),
    10_000: (12, 18, 19, 20, *range(42, 47)),
    20_000: (21, 22),
    25_000: (31, 32, 33),
    40_000: (23, 24, 25, 26),
    50_000: (34, 35, 40, *range(52, 57)),
    56_000: (27, 28, 29, 30),
    100_000: (*range(36, 40), *range(57, 62), *range(75, 80)),
    200_000: (*range(62, 67), *range(80, 85)),
    400_000: (*range(69, 74), *range(85, 90)),
    800_000: tuple(range(93, 99)),
}
"""Mbit/s, and the bits of their modes: ``enum ethtool_link_mode_bit_indices``."""


class LinkSettings(NamedTuple):
    """Link settings that a card reports; ``None`` where it does not.

    Args:
        most: the fastest that it can.
        offered: the fastest that it was told to agree to.
        peer_offered: the same of the other end.
    """

    speed_mbit_per_s: int | None = None
    is_half_duplex: bool = False
    most: int | None = None
    offered: int | None = None
    peer_offered: int | None = None


def read_link_settings(name: str) -> LinkSettings | None:
    """Read a card's link settings; ``None`` if its driver reports none, as most virtual ones."""
    if (header := _ask(name, 0)) is None:
        return None
    words = -_HEADER.unpack_from(header)[9]  # the kernel answers with what it wants, negative
    if not 0 < words <= _MOST_WORDS:
        return None
    answer = _ask(name, words)
    return None if answer is None else parse_link_settings(answer)


def parse_link_settings(answer: bytes) -> LinkSettings:
    """Parse the kernel's answer."""
    _, speed, duplex, *_ = header = _HEADER.unpack_from(answer)
    words = header[9]
    size = 4 * words
    supported, offered, peer = (
        int.from_bytes(answer[at : at + size], "little")
        for at in range(_HEADER.size, _HEADER.size + 3 * size, size)
    )
    return LinkSettings(
        speed_mbit_per_s=speed if 0 < speed < _UNKNOWN_SPEED else None,
        is_half_duplex=duplex == _HALF and 0 < speed < _UNKNOWN_SPEED,
        most=_fastest(supported),
        offered=_fastest(offered),
        peer_offered=_fastest(peer),
    )


def mask_of(bits: Iterable[int]) -> int:
    """Return a mask with these bits set."""
    return sum(1 << bit for bit in bits)


def _fastest(mask: int) -> int | None:
    return max((speed for speed, bits in _MODES.items() if mask & mask_of(bits)), default=None)


def _ask(name: str, words: int) -> bytes | None:
    header = _HEADER.pack(_GLINKSETTINGS, 0, *[0] * 7, words, *[0] * 4)
    return ask_kernel(name, header + bytes(3 * 4 * _MOST_WORDS))


def ask_kernel(name: str, question: bytes) -> bytes | None:
    """Ask a card's driver, as ethtool does.

    Args:
        question: begins with its number, and is as long as the answer.
    """
    memory = array.array("B", question)
    request = struct.pack("16sP16x", name.encode()[:15], memory.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError:
            return None
    return memory.tobytes()


# Firmware: its versions in GPUs, network cards and adapters for RDMA, as drivers tell them.


_GDRVINFO: Final = 0x3
_INFO: Final = struct.Struct("=I32s32s32s32s32s12s5I")
"""``struct ethtool_drvinfo`` of ``linux/ethtool.h``: driver, its version and the firmware's."""

_UNKNOWN: Final = frozenset({"", "N/A"})

Ask = Callable[[str], str]


def card_firmware(name: str) -> str:
    """Return the firmware that ``ethtool -i`` shows for a network card; empty if there is none."""
    answer = ask_kernel(name, _INFO.pack(_GDRVINFO, *[b""] * 6, *[0] * 5))
    return "" if answer is None else parse_card_firmware(answer)


def parse_card_firmware(answer: bytes) -> str:
    """Parse the kernel's answer."""
    found: bytes = _INFO.unpack_from(answer)[3]
    return found.split(b"\0", 1)[0].decode(errors="replace").strip()


_OF_GPU: Final = (
    ("", "nvmlDeviceGetVbiosVersion"),
    (" (InfoROM)", "nvmlDeviceGetInforomImageVersion"),
)
"""What is added to the model, and the call that tells the version."""


def read_firmware(
    nvml: Any, gpus: Iterable[int], cards: Iterable[str], sysfs: Path, ask: Ask = card_firmware
) -> tuple[Firmware, ...]:
    """Return the firmware versions of devices that report one.

    Args:
        nvml: the module ``pynvml``, or ``None``.
        gpus: indices.
        cards: names of network cards.
        ask: a card for its version.
    """
    told = (
        *(() if nvml is None else _of_gpus(nvml, gpus)),
        *_of_cards(cards, sysfs / "class" / "net", ask),
        *_of_adapters(sysfs / "class" / "infiniband"),
    )
    return tuple(one for one in told if one.version not in _UNKNOWN and one.model)


def _of_gpus(nvml: Any, gpus: Iterable[int]) -> Iterator[Firmware]:
    for index in gpus:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            model = nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError:  # it does not answer
            continue
        for what, call in _OF_GPU:
            try:
                version = str(getattr(nvml, call)(handle))
            except (nvml.NVMLError, AttributeError):  # it has none, or an older library
                continue
            yield Firmware(kind="GPU", device=f"GPU {index}", model=model + what, version=version)


def _of_cards(cards: Iterable[str], net: Path, ask: Ask) -> Iterator[Firmware]:
    for name in cards:
        ids = [kernel_text(net / name / "device" / one) for one in ("vendor", "device")]
        model = ":".join(one.removeprefix("0x") for one in ids) if all(ids) else ""
        yield Firmware("network card", name, model, ask(name))


def _of_adapters(folder: Path) -> Iterator[Firmware]:
    for one in sorted(folder.glob("*")):
        yield Firmware(
            kind="adapter",
            device=one.name,
            model=kernel_text(one / "board_id"),
            version=kernel_text(one / "fw_ver"),
        )


# GPU setup: how NVIDIA's GPUs, their driver and their fabric are set up. Only asks.
#
# Written from NVML's documentation and tested with recorded answers; it has not run on a card yet.


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
    """Read the settings of NVIDIA's driver.

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
    """Read the setup of these GPUs; nothing without NVML.

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
    """Return what a GPU reports about its NVSwitch fabric; ``None`` if nothing."""
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
    """Return how many NVLinks of a GPU are up; ``None`` if it has none."""
    states: list[int] = []
    for link in range(_MOST_NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except (nvml.NVMLError, AttributeError):  # it has fewer, or the library is older
            break
    return states.count(_ENABLED) if states else None


def _reached(nvml: Any, handle: Any, others: Iterable[int]) -> tuple[int, ...] | None:
    """Return the other GPUs whose memory this one can access directly; ``None`` if unknown."""
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
    """Return the sysfs path of a PCI device."""
    if pci is None:
        return None
    # NVML has a domain of 8 digits, sysfs one of 4.
    address = str(pci.busId).lower()[-len("0000:01:00.0") :]
    return sysfs / "bus" / "pci" / "devices" / address


def _redirecting(device: Path) -> tuple[str, ...] | None:
    """Return the bridges above a device whose ACS redirects; ``None`` if one may not be read."""
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
    """Return a bridge's ACS control register; 0 if it has none, ``None`` if not readable."""
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
    """Return a device's NUMA node. The kernel says -1 where there is only one."""
    found = kernel_text(device / "numa_node")
    return int(found) if found.isdecimal() else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


# Kernel faults: what the kernel has logged of hardware, disks, memory and the network since boot.
#
# The log is the machine's: what it says of other containers is left out.


MOST_OF_A_KIND = 20
"""Newest lines of each kind of fault that are reported from the kernel's log."""
MOST_CHARACTERS = 300

_KINDS: Final[tuple[tuple[KernelFaultKind, re.Pattern[str]], ...]] = (
    ("GPU", re.compile(r"NVRM: Xid \([^)]*\): (?P<xid>\d+)")),
    (
        "disk",
        # Not of drives for disks that can be taken out, which say so while they have none.
        re.compile(
            r"(I/O|critical medium) error(?!.*\b(dev|device) (fd|sr|loop)\d)|EXT4-fs error"
            r"|XFS .*(error|shut ?down)|BTRFS.*error|Remounting filesystem read-only",
            re.IGNORECASE,
        ),
    ),
    ("machine check", re.compile(r"\[Hardware Error\]|Machine check events logged")),
    # Where a control group ran out, it was a container, and its own fault.
    ("out of memory", re.compile(r"(?<!cgroup )out of memory: kill(ed)? process", re.IGNORECASE)),
    ("connections", re.compile(r"nf_conntrack: .*table full", re.IGNORECASE)),
    ("network", re.compile(r"NETDEV WATCHDOG", re.IGNORECASE)),
)
_WORDS: Final = ("nvrm", "error", "shut", "read-only", "machine check", "memory", "table", "netdev")
"""Each of these kinds has one."""


def read_kernel_faults(path: Path) -> tuple[KernelFault, ...] | None:
    """Return the newest fault of each kind; ``None`` if the log may not be read."""
    if not os.access(path, os.R_OK):
        return None
    now_s = time.monotonic()  # the kernel stamps its lines with this clock
    by_kind: dict[KernelFaultKind, list[KernelFault]] = {kind: [] for kind, _ in _KINDS}
    records = list(kernel_records(path))
    text = "\n".join(line for _, line in records).lower()
    words = [one for one in _WORDS if one in text]  # mostly one or two of thousands of lines
    for time_s, line in records:
        lowered = line.lower()
        is_asked = any(word in lowered for word in words)
        found = _fault(line, now_s - time_s) if is_asked else None
        if found is not None:
            by_kind[found.kind].append(found)
    newest = (one for faults in by_kind.values() for one in faults[-MOST_OF_A_KIND:])
    return tuple(sorted(newest, key=lambda one: -one.age_s))


def _fault(line: str, age_s: float) -> KernelFault | None:
    for kind, pattern in _KINDS:
        if found := pattern.search(line):
            xid = int(found["xid"]) if kind == "GPU" else None
            return KernelFault(kind, line[:MOST_CHARACTERS], max(0.0, age_s), xid)
    return None


# Network cards: their links and their errors, below the interfaces that a job may use.


_SENT_OR_RECEIVED = ("rx_packets", "tx_packets")
_ERRORS = ("rx_errors", "tx_errors")
# Not rx_dropped: it also counts frames of protocols that this machine does not speak.
_MISSED = ("rx_missed_errors",)

MOST_CARDS = 64
CARD: InterfaceKind = "ethernet"

AskCard = Callable[[str], LinkSettings | None]


def read_network_cards(
    sysfs: Path, before: Mapping[str, int] | None = None, ask: AskCard = read_link_settings
) -> tuple[NetworkCard, ...]:
    """Read the cards of all interfaces that are up, without virtual ones and loopback.

    Args:
        before: their errors when the reading began, from :func:`read_errors`.
        ask: a card for its link.
    """
    cards = [
        _read(card, interface.name, (before or {}).get(card.name), ask)
        for interface in _interfaces(sysfs)
        for card in _cards(interface)
    ]
    return tuple(cards[:MOST_CARDS])


def read_errors(sysfs: Path) -> dict[str, int]:
    """Count the errors of each card since boot."""
    return {
        card.name: _sum(card, _ERRORS + _MISSED)
        for interface in _interfaces(sysfs)
        for card in _cards(interface)
    }


def read_adapter_numa_nodes(sysfs: Path) -> dict[str, int]:
    """Return the NUMA nodes of InfiniBand or RoCE adapters, if there are several."""
    adapters = sorted((sysfs / "class" / "infiniband").glob("*"))
    found = {one.name: read_numa_node(one / "device") for one in adapters}
    return {name: node for name, node in found.items() if node is not None}


def _interfaces(sysfs: Path) -> Iterator[Path]:
    for one in sorted((sysfs / "class" / "net").glob("*")):
        is_up = (
            kernel_text(one / "operstate") in ("up", "unknown")
            and kernel_text(one / "carrier") == "1"
        )
        # A card of a bond belongs to the bond.
        if is_up and not (one / "master").exists() and interface_kind(one.name, sysfs) == CARD:
            yield one


def _cards(interface: Path) -> list[Path]:
    """Return the cards below a bridge, a bond or a VLAN; otherwise the card itself."""
    below = [interface.parent / one.name[len("lower_") :] for one in interface.glob("lower_*")]
    found = [card for one in sorted(below) if one.exists() for card in _cards(one)]
    return [one for one in found if (one / "device").exists()] or [interface]


def _read(card: Path, interface: str, before: int | None, ask: AskCard) -> NetworkCard:
    link = ask(card.name) or LinkSettings()
    errors = _sum(card, _ERRORS + _MISSED)
    ups = kernel_text(card / "carrier_up_count")
    return NetworkCard(
        name=card.name,
        interface=interface,
        speed_mbit_per_s=link.speed_mbit_per_s,
        is_half_duplex=link.is_half_duplex,
        most_mbit_per_s=link.most,
        offered_mbit_per_s=link.offered,
        peer_offered_mbit_per_s=link.peer_offered,
        packets=_sum(card, _SENT_OR_RECEIVED),
        errors=errors,
        new_errors=0 if before is None else max(0, errors - before),
        came_up=int(ups) if ups.isdecimal() else None,
        numa_node=read_numa_node(card / "device"),
    )


def _sum(card: Path, names: tuple[str, ...]) -> int:
    counts = (kernel_text(card / "statistics" / name) for name in names)
    return sum(int(one) for one in counts if one.isdecimal())


# GPU health: reads errors, clocks and users of GPUs from NVML. Changes nothing.
# Written from NVML's documentation and tested with recorded answers; it has not run on a card yet.


_SLOWDOWNS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "too hot (driver)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
"""``nvml.h``, ``nvmlClocksThrottleReason…``."""

_UNCORRECTED, _SINCE_BOOT = 1, 0
"""``NVML_MEMORY_ERROR_TYPE_UNCORRECTED``, ``NVML_VOLATILE_ECC``."""


def gpu_health(
    nvml: Any, indices: Iterable[int], ours: Collection[int] = ()
) -> tuple[GpuHealth, ...]:
    """Read the health of these GPUs; nothing without NVML.

    Args:
        nvml: the module ``pynvml``, or ``None``.
        ours: processes that are not others.
    """
    return () if nvml is None else tuple(_health_of(nvml, index, ours) for index in indices)


def _health_of(nvml: Any, index: int, ours: Collection[int]) -> GpuHealth:
    """Read the health of one GPU. What it does not report stays unknown."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        total = nvml.nvmlDeviceGetMemoryInfo(handle).total
    except nvml.NVMLError_NotSupported:
        total = 0  # it shares the machine's memory
    except nvml.NVMLError as error:
        return GpuHealth(index=index, trouble=str(error))

    def told(name: str, *more: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *more)
        except (nvml.NVMLError, AttributeError):  # an older driver, or an older library
            return None

    reasons = told("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    remapped = told("nvmlDeviceGetRemappedRows")
    retired = told("nvmlDeviceGetRetiredPagesPendingStatus")
    users = told("nvmlDeviceGetComputeRunningProcesses") or ()
    return GpuHealth(
        index=index,
        temperature_c=told("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        slowed_by=tuple(word for bit, word in _SLOWDOWNS.items() if reasons & bit),
        uncorrected_errors=told("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_BOOT),
        # (corrected rows, uncorrected rows, one is pending, one failed)
        repairs_pending=bool(retired or (remapped and (remapped[2] or remapped[3]))),
        memory_bytes=total or None,
        others=tuple(
            msgspec.structs.replace(
                process_on_gpu(one.pid), memory_bytes=getattr(one, "usedGpuMemory", None)
            )
            for one in users
            if one.pid not in ours
        ),
    )
