"""GPU setup, from answers as NVML's documentation has them; no card was asked."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml
import pytest

from jupyter_mntrain.agent.machine import hardware
from jupyter_mntrain.agent.machine.hardware import (
    read_gpu_driver,
    read_gpu_setups,
)
from jupyter_mntrain.doctor import gpus
from jupyter_mntrain.model.records.doctor.hardware import GpuDriver, GpuSetup
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin import cards
from tests.standin.cards import SETUP, CardError, Cards

LOST = CardError("GPU is lost", 15)
DEGRADED, WELL = 1, 2


def card(sysfs: Path = Path("/nowhere"), **told: Any) -> GpuSetup:
    (found,) = read_gpu_setups(Cards(told=told), [0], sysfs)
    return found


def test_a_card_tells_how_it_is_set_up(tmp_path):
    device = tmp_path / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    told = {"nvmlDeviceGetPersistenceMode": 0, "nvmlDeviceGetPowerManagementLimit": 200_000}
    assert card(tmp_path, **told) == GpuSetup(
        index=0,
        name="RTX",
        is_persistent=False,
        compute_mode="default",
        pcie_width=16,
        pcie_most=16,
        power_limit_w=200.0,
        power_default_w=350.0,
        numa_node=1,
        reaches=(),
        redirected_by=(),
    )
    (device / "numa_node").write_text("-1\n")
    assert card(tmp_path).numa_node is None


@pytest.mark.parametrize(
    ("states", "up"), [((), None), ((1, 1, 1, 1), 4), ((1, 0, 1, 1), 3), ((0, 0), 0)]
)
def test_nvlinks_that_are_up_are_counted(states: tuple[int, ...], up: int | None):
    (found,) = read_gpu_setups(Cards(nvlinks=states), [0], Path("/nowhere"))
    assert found.nvlinks == up


def test_what_a_card_does_not_tell_is_unknown():
    assert card(**dict.fromkeys(SETUP)) == GpuSetup(index=0, name="RTX", reaches=())


def pci_device(sysfs: Path, *bridges: bytes | None) -> None:
    """The card of the stand-in below bridges with these settings; ``None``: unreadable."""
    at = sysfs / "devices" / "pci0000:00"
    for number, config in enumerate(bridges):
        at = at / f"0000:{number:02x}:01.0"
        at.mkdir(parents=True)
        if config is not None:
            (at / "config").write_bytes(config)
    group = at / "0000:01:00.0" / "iommu_group"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    (sysfs / "bus" / "pci" / "devices").mkdir(parents=True)
    (sysfs / "bus" / "pci" / "devices" / "0000:01:00.0").symlink_to(at / "0000:01:00.0")


def config_with(acs: int | None) -> bytes:
    """Of a bridge with a capability before its access control, of which only that is written."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | (1 << 16) | (0x148 << 20)).to_bytes(4, "little")
    if acs is not None:
        space[0x148:0x14C] = (0x000D | (1 << 16)).to_bytes(4, "little")
        space[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(space)


@pytest.mark.parametrize(
    ("bridges", "redirected_by"),
    [
        ([], ()),
        ([config_with(None)], ()),
        ([config_with(0x11)], ()),  # source validation, upstream forwarding
        ([config_with(0x1D)], ("0000:00:01.0",)),
        ([config_with(0x4), config_with(0x8)], ("0000:01:01.0", "0000:00:01.0")),
        ([config_with(0)[:64]], None),  # what others than root see
        ([config_with(0x1D), None], None),
    ],
)
def test_what_redirects_what_cards_send_each_other(
    tmp_path: Path, bridges: list[bytes | None], redirected_by: tuple[str, ...] | None
):
    pci_device(tmp_path, *bridges)
    found = card(tmp_path)
    assert (found.redirected_by, found.iommu) == (redirected_by, "DMA-FQ")


@pytest.mark.parametrize(
    ("status", "reached"),
    [
        (0, [(1,), (0,)]),
        (3, [(), ()]),  # GPU not supported: GeForce cards
        (lambda one, _, __: one, [(1,), ()]),
        (None, [None, None]),
    ],
)
def test_which_cards_read_each_others_memory(status: Any, reached: list[Any]):
    stand_in = Cards(uuids=("GPU-1", "GPU-2"), told={"nvmlDeviceGetP2PStatus": status})
    found = read_gpu_setups(stand_in, [0, 1], Path("/nowhere"))
    assert [one.reaches for one in found] == reached
    assert pynvml.NVML_P2P_STATUS_OK == hardware._P2P_OK


@pytest.mark.parametrize(("number", "mode"), [(2, "prohibited"), (3, "exclusive"), (1, None)])
def test_compute_modes(number, mode):
    assert card(nvmlDeviceGetComputeMode=number).compute_mode == mode


@pytest.mark.parametrize(
    ("fabric", "found"),
    [
        (None, (None, 0, False)),
        ((0, 0, 0), (None, 0, False)),
        ((1, 0, 0), ("not started", 0, False)),
        ((2, 5, 0), ("in progress", 0, False)),
        ((3, 0, WELL), ("completed", 0, False)),
        ((3, 999, DEGRADED), ("completed", 999, True)),
    ],
)
def test_a_card_tells_of_its_fabric(fabric, found):
    (one,) = read_gpu_setups(Cards(fabric=fabric), [0], Path("/nowhere"))
    assert (one.fabric, one.fabric_error, one.is_fabric_slow) == found


def test_the_structures_of_the_fabric_are_nvml_s():
    for call, structure in hardware._FABRIC_CALLS:
        assert callable(getattr(pynvml, call))
        found = getattr(pynvml, structure)()
        assert isinstance(found, ctypes.Structure)
        assert (found.state, found.status) == (0, 0)
    assert pynvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH == gpus.VERSION_MISMATCH
    assert pynvml.NVML_ERROR_DRIVER_NOT_LOADED == gpus.DRIVER_NOT_LOADED
    assert pynvml.NVML_ERROR_LIBRARY_NOT_FOUND == gpus.LIBRARY_NOT_FOUND


def test_cards_that_do_not_answer_and_those_that_are_split_are_among_them(monkeypatch, tmp_path):
    stand_in = Cards(uuids=("GPU-1", "GPU-2", "GPU-3"), split=(1,), lost={2: LOST})
    cards.install(monkeypatch, stand_in)
    reader = GpuReader()
    assert [one.index for one in reader.read()] == [0]
    found = read_gpu_setups(reader.nvml, reader.indices, tmp_path)
    assert [(one.trouble, one.is_split) for one in found] == [
        ("", False),
        ("", True),
        ("GPU is lost", False),
    ]


def test_without_nvml_there_are_no_cards():
    assert read_gpu_setups(None, [0], Path("/nowhere")) == ()


def test_why_the_driver_does_not_answer(monkeypatch):
    stand_in = Cards()
    stand_in.trouble = CardError("Driver/library version mismatch", 18)
    cards.install(monkeypatch, stand_in)
    reader = GpuReader(retry_s=0.0)
    assert reader.error == 18
    stand_in.trouble = None
    reader.read()
    assert (reader.error, reader.indices) == (None, (0,))
    stand_in.trouble = LOST
    reader.read()
    assert (reader.error, reader.indices) == (15, ())


def test_cards_on_the_bus_and_the_fabric_manager(tmp_path):
    sysfs, proc = tmp_path / "sys", tmp_path / "proc"
    for at, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1002", "0x030000")]
    ):
        device = sysfs / "bus" / "pci" / "devices" / f"0000:0{at}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    assert read_gpu_driver(9, sysfs, proc) == GpuDriver(cards=1, error=9)
    (proc / "driver" / "nvidia-nvswitch" / "devices" / "0000:05:00.0").mkdir(parents=True)
    (proc / "7").mkdir()
    (proc / "7" / "comm").write_text("bash\n")
    assert read_gpu_driver(None, sysfs, proc) == GpuDriver(cards=1, has_switches=True)
    (proc / "7" / "comm").write_text("nv-fabricmanage\n")
    assert read_gpu_driver(None, sysfs, proc).has_fabric_manager
