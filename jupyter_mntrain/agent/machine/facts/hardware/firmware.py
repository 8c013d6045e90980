"""Firmware: its versions in GPUs, network cards and adapters for RDMA, as drivers tell them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from jupyter_mntrain.agent.machine.facts.hardware.link_settings import ask_kernel
from jupyter_mntrain.model.records.doctor.hardware import Firmware
from jupyter_mntrain.telemetry.kernel_files import kernel_text

_GDRVINFO: Final = 0x3
_INFO: Final = struct.Struct("=I32s32s32s32s32s12s5I")
"""``struct ethtool_drvinfo`` of ``linux/ethtool.h``: driver, its version and the firmware's."""

_UNKNOWN: Final = frozenset({"", "N/A"})

Ask = Callable[[str], str]


def card_firmware(name: str) -> str:
    """What the driver of a network card says, as ``ethtool -i``; empty if nothing."""
    answer = ask_kernel(name, _INFO.pack(_GDRVINFO, *[b""] * 6, *[0] * 5))
    return "" if answer is None else parse_card_firmware(answer)


def parse_card_firmware(answer: bytes) -> str:
    """Read the kernel's answer."""
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
    """The versions of those that tell one.

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
        yield Firmware(kind="network card", device=name, model=model, version=ask(name))


def _of_adapters(folder: Path) -> Iterator[Firmware]:
    for one in sorted(folder.glob("*")):
        yield Firmware(
            kind="adapter",
            device=one.name,
            model=kernel_text(one / "board_id"),
            version=kernel_text(one / "fw_ver"),
        )
