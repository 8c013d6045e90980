"""Firmware, from NVML's stand-in, from trees like the kernel's, and as the kernel answers."""

from __future__ import annotations

import struct
from pathlib import Path

from jupyter_mntrain.agent.machine.hardware import (
    card_firmware,
    parse_card_firmware,
    read_firmware,
)
from jupyter_mntrain.model.records.doctor.hardware import Firmware
from tests.standin.cards import CardError, Cards


def files(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")


def test_gpus_cards_and_adapters_tell_their_versions(tmp_path: Path) -> None:
    files(tmp_path / "class/net/eno1/device", vendor="0x15b3", device="0x101d")
    files(tmp_path / "class/infiniband/mlx5_0", board_id="MT_0000000838", fw_ver="28.39.1002")
    cards = Cards(uuids=("GPU-1", "GPU-2"), lost={1: CardError("GPU is lost", 15)})
    found = read_firmware(cards, (0, 1), ("eno1",), tmp_path, {"eno1": "22.39.1002"}.__getitem__)
    assert found == (
        Firmware(kind="GPU", device="GPU 0", model="RTX", version="96.00.89.00.01"),
        Firmware(kind="GPU", device="GPU 0", model="RTX (InfoROM)", version="G520.0200.00.05"),
        Firmware(kind="network card", device="eno1", model="15b3:101d", version="22.39.1002"),
        Firmware(kind="adapter", device="mlx5_0", model="MT_0000000838", version="28.39.1002"),
    )


def test_what_tells_no_version_is_left_out(tmp_path: Path) -> None:
    files(tmp_path / "class/net/eno1/device", vendor="0x15b3", device="0x101d")
    files(tmp_path / "class/infiniband/rxe0", fw_ver="")
    calls = ("nvmlDeviceGetVbiosVersion", "nvmlDeviceGetInforomImageVersion")
    silent = Cards(told=dict.fromkeys(calls))
    assert read_firmware(silent, (0,), ("eno1", "veth0"), tmp_path, lambda _: "N/A") == ()
    assert read_firmware(None, (), (), tmp_path / "nothing") == ()


def test_the_kernels_answer_is_read() -> None:
    # struct ethtool_drvinfo: number, driver, version, firmware, bus, ROM, reserved, five counts
    texts = (b"mlx5_core", b"6.8.0", b"22.39.1002 (MT_0838)", b"0000:01:00.0", b"", b"")
    answer = struct.pack("=I32s32s32s32s32s12s5I", 3, *texts, 0, 0, 0, 0, 0)
    assert parse_card_firmware(answer) == "22.39.1002 (MT_0838)"


def test_the_kernel_is_asked() -> None:
    assert card_firmware("lo") == ""
    assert card_firmware("nothing-there") == ""
