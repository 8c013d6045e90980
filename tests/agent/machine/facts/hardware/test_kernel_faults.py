"""Kernel faults: told by kind, number and age; what is no fault of this machine is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine import hardware
from jupyter_mntrain.agent.machine.hardware import read_kernel_faults
from jupyter_mntrain.model.records.doctor.hardware import KernelFault

FALLEN = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus."


def log(path: Path, line: str) -> tuple[KernelFault, ...]:
    """What is found in a kernel's log with this line. It gives one record at a time."""
    kmsg = path / "kmsg"
    os.mkfifo(kmsg)
    stamp = round((time.monotonic() - 60.0) * 1e6)
    with open(os.open(kmsg, os.O_RDWR), "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        file.write(f"6,1,{stamp},-;{line}\n SUBSYSTEM=pci\n".encode())
        found = read_kernel_faults(kmsg)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("GPU", FALLEN),
        ("GPU", "NVRM: Xid (0000:01:00): 79, GPU has fallen off the bus."),
        ("disk", "blk_update_request: I/O error, dev sda, sector 2048"),
        ("disk", "critical medium error, dev sda, sector 2048 op 0x0:(READ)"),
        ("disk", "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455"),
        ("disk", "XFS (sdb1): metadata I/O error in xfs_trans_read_buf_map"),
        ("machine check", "mce: [Hardware Error]: Machine check events logged"),
        ("out of memory", "Out of memory: Killed process 4711 (python) total-vm:1kB"),
        ("connections", "nf_conntrack: nf_conntrack: table full, dropping packet"),
        ("network", "NETDEV WATCHDOG: eno1 (igc): transmit queue 0 timed out"),
    ],
)
def test_a_fault_is_told_by_its_kind(tmp_path, kind, line):
    (found,) = log(tmp_path, line)
    assert (found.kind, found.line) == (kind, line)
    assert found.age_s == pytest.approx(60.0, abs=5.0)
    assert found.xid == (79 if kind == "GPU" else None)


@pytest.mark.parametrize(
    "line",
    [
        "Memory cgroup out of memory: Killed process 4711 (python)",
        "blk_update_request: I/O error, dev fd0, sector 0",
        "Buffer I/O error on dev sr0, logical block 0",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "python[4711]: segfault at 0 ip 00007f",
        "usb 1-1: new device",
    ],
)
def test_what_is_no_fault_of_this_machine_is_left_out(tmp_path, line):
    assert log(tmp_path, line) == ()


def test_a_flood_of_one_kind_hides_no_other(monkeypatch, tmp_path):
    most = hardware.MOST_OF_A_KIND
    records = [(1.0, FALLEN), *((2.0 + at, "NETDEV WATCHDOG: eno1") for at in range(most + 30))]
    monkeypatch.setattr(hardware, "kernel_records", lambda _: records)
    (tmp_path / "kmsg").touch()
    found = read_kernel_faults(tmp_path / "kmsg")
    assert found[0].xid == 79
    assert len(found) == 1 + most


def test_a_log_that_may_not_be_read_is_unknown(tmp_path):
    assert read_kernel_faults(tmp_path / "none") is None
