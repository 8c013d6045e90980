"""Network cards, from trees like the kernel's, and their links as the kernel answers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.hardware import (
    LinkSettings,
    mask_of,
    parse_link_settings,
    read_adapter_numa_nodes,
    read_errors,
    read_link_settings,
    read_network_cards,
)
from jupyter_mntrain.model.records.doctor.hardware import NetworkCard

GIGABIT = LinkSettings(1000, is_half_duplex=False, most=1000, offered=1000, peer_offered=1000)

TEN, HUNDRED, THOUSAND, TEN_THOUSAND, AUTONEG = 1, 3, 5, 12, 6
"""Bits of full duplex, ``linux/ethtool.h``."""


def interface(sysfs: Path, name: str, *, is_card: bool = True, **files: str) -> Path:
    """An interface that is up, with counters."""
    folder = sysfs / "class" / "net" / name
    (folder / "statistics").mkdir(parents=True)
    usual = {"type": "1", "operstate": "up", "carrier": "1", "carrier_up_count": "3"}
    for file, text in {**usual, **files}.items():
        (folder / file).write_text(text + "\n")
    counts = {"rx_packets": 70, "tx_packets": 30, "rx_errors": 4, "rx_missed_errors": 1}
    for file, count in counts.items():
        (folder / "statistics" / file).write_text(f"{count}\n")
    if is_card:
        (folder / "device").mkdir()
    return folder


def test_a_card_tells_its_link_and_its_errors(tmp_path):
    folder = interface(tmp_path, "eno1")
    before = read_errors(tmp_path)
    (folder / "statistics" / "tx_errors").write_text("7\n")
    assert read_network_cards(tmp_path, before, lambda _: GIGABIT) == (
        NetworkCard(
            name="eno1",
            interface="eno1",
            speed_mbit_per_s=1000,
            most_mbit_per_s=1000,
            offered_mbit_per_s=1000,
            peer_offered_mbit_per_s=1000,
            packets=100,
            errors=12,
            new_errors=7,
            came_up=3,
        ),
    )


def test_interfaces_that_no_job_uses_are_left_out(tmp_path):
    interface(tmp_path, "lo", type="772")
    interface(tmp_path, "eno2", operstate="down", carrier="0")
    interface(tmp_path, "tun0", type="65534")
    assert read_network_cards(tmp_path) == ()
    assert read_network_cards(tmp_path / "nothing") == ()


def test_a_bond_tells_of_its_cards(tmp_path):
    bond = interface(tmp_path, "bond0", is_card=False)
    for name in ("eno1", "eno2"):
        card = interface(tmp_path, name)
        (card / "master").symlink_to(bond)
        (bond / f"lower_{name}").symlink_to(card)
    vlan = interface(tmp_path, "bond0.7", is_card=False)
    (vlan / "lower_bond0").symlink_to(bond)
    found = read_network_cards(tmp_path, ask=lambda _: None)
    assert [(one.name, one.interface) for one in found] == [
        ("eno1", "bond0"),
        ("eno2", "bond0"),
        ("eno1", "bond0.7"),
        ("eno2", "bond0.7"),
    ]
    assert found[0].speed_mbit_per_s is None


def answer(speed: int, duplex: int, *masks: int) -> bytes:
    """What the kernel answers: a header, and masks of 2 words each."""
    header = struct.pack("=IIBBBBBBBbBBBB28x", 0x4C, speed, duplex, *[0] * 6, 2, *[0] * 4)
    return header + b"".join(one.to_bytes(8, "little") for one in masks) + bytes(64)


def test_a_link_that_fell_back():
    card = mask_of([TEN, HUNDRED, THOUSAND, TEN_THOUSAND, AUTONEG])
    offered, peer = mask_of([HUNDRED, THOUSAND, AUTONEG]), mask_of([THOUSAND, AUTONEG])
    assert parse_link_settings(answer(100, 1, card, offered, peer)) == LinkSettings(
        100, is_half_duplex=False, most=10_000, offered=1000, peer_offered=1000
    )


@pytest.mark.parametrize(
    ("speed", "duplex", "is_half"),
    [(100, 0, True), (100, 1, False), (100, 0xFF, False), (0xFFFFFFFF, 0, False), (0, 0, False)],
)
def test_duplex_of_a_link_that_has_one(speed, duplex, is_half):
    found = parse_link_settings(answer(speed, duplex, 0, 0, 0))
    assert found.is_half_duplex == is_half
    assert found.speed_mbit_per_s == (100 if speed == 100 else None)
    assert (found.most, found.offered, found.peer_offered) == (None, None, None)


def test_this_machine_is_asked():
    assert read_link_settings("no_such_card") is None
    assert read_link_settings("lo") in (None, LinkSettings())
    for one in read_network_cards(Path("/sys")):
        assert one.errors <= one.packets or one.packets == 0


def test_numa_nodes_of_adapters(tmp_path):
    for name, node in {"mlx5_0": "1", "mlx5_1": "-1"}.items():
        device = tmp_path / "class" / "infiniband" / name / "device"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(node + "\n")
    assert read_adapter_numa_nodes(tmp_path) == {"mlx5_0": 1}
