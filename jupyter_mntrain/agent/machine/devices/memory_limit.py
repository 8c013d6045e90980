"""Memory limit: how much of the machine's memory this process and its children may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from jupyter_mntrain.agent.machine.devices.control_groups import own_groups
from jupyter_mntrain.model.sources.allocation_limits import read_allocation_limits
from jupyter_mntrain.telemetry.kernel_files import kernel_text


class UsableMemory(NamedTuple):
    """Bytes that this process and its children may use, and those of them that are free."""

    total_bytes: int
    available_bytes: int


def usable_memory(environment: Mapping[str, str] = os.environ) -> UsableMemory:
    """The machine's memory, within the limits of control groups and of an allocation.

    Args:
        environment: tells what an allocation gives it, which not every site enforces.
    """
    machine = psutil.virtual_memory()
    limits = [UsableMemory(machine.total, machine.available), *_limits()]
    if (granted := read_allocation_limits(environment).memory_bytes) is not None:
        limits.append(UsableMemory(granted, granted))
    return UsableMemory(*map(min, zip(*limits, strict=True)))


def _limits() -> list[UsableMemory]:
    """Of each control group that this process is in, and of those above it."""
    names = {2: ("memory.max", "memory.current"), 1: _FIRST}
    found = (_limit(group, *names[version]) for version, group in own_groups("memory"))
    return [one for one in found if one is not None]


_FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _limit(group: Path, most: str, used: str) -> UsableMemory | None:
    """Of one group; ``None`` without a limit. Of its use, what is cached of files is free.

    A group of version 1 without a limit has one near the largest number: the machine has less.
    """
    limit, use = kernel_text(group / most), kernel_text(group / used)
    if not limit.isdecimal():
        return None
    held = max(0, int(use or 0) - _cached(group))
    return UsableMemory(int(limit), max(0, int(limit) - held))


def _cached(group: Path) -> int:
    """Bytes that the kernel gives back when they are needed."""
    lines = dict(line.split() for line in kernel_text(group / "memory.stat").splitlines())
    return int(lines.get("inactive_file", lines.get("total_inactive_file", "0")))
