"""CPU and memory limits: how much of the machine this process and its children may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from jupyter_mntrain.model.sources.allocation_limits import read_allocation_limits
from jupyter_mntrain.telemetry.kernel_files import kernel_text

# Control groups: those that limit this process, of both versions.


CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

Version = Literal[1, 2]


def own_groups(controller: str, listed: Path | None = None) -> Iterator[tuple[Version, Path]]:
    """Yield the directories of a process's control groups, and of those above them.

    Args:
        controller: of version 1, like ``cpu``.
        listed: ``/proc/PID/cgroup``; this process's own unless given.
    """
    for line in kernel_text(listed or OWN).splitlines():
        number, controllers, name = line.split(":", 2)
        own = Path(name.lstrip("/"))
        if number == "0" and not controllers:
            for group in (own, *own.parents):
                yield 2, CGROUPS / group
        elif controller in controllers.split(","):
            for group in (own, *own.parents):
                yield 1, CGROUPS / controller / group


def frozen_group(listed: Path) -> Path | None:
    """The group that keeps a process from running, as that of a paused container.

    Args:
        listed: ``/proc/PID/cgroup``.
    """
    says = {1: ("freezer.state", "FROZEN"), 2: ("cgroup.events", "frozen 1")}
    for version, group in own_groups("freezer", listed):
        name, frozen = says[version]
        if frozen in kernel_text(group / name).splitlines():
            return group
    return None


# CPU limit: how many cores this process and its children may use.


def usable_cpus(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores that this process may keep busy, of those that it may run on."""
    return max(1, math.ceil(cores(environment)))


def cores(environment: Mapping[str, str] = os.environ) -> float:
    """Return how many cores' worth of CPU time is available, which control groups can make a
    fraction.

    Args:
        environment: tells what an allocation gives it, which not every site enforces.
    """
    limits = [limit for limit in _cpu_limits() if limit is not None]
    granted = read_allocation_limits(environment).cpus
    told = [] if granted is None else [float(granted)]
    return round(min([float(affine_cpus()), *limits, *told]), 3)


def affine_cpus() -> int:
    """Return the number of cores that the kernel's scheduler lets this process run on."""
    return len(os.sched_getaffinity(0))


def _cpu_limits() -> list[float | None]:
    """Return the CPU limits of this process's control groups, and of those above them."""
    read = {2: _second, 1: _first}
    return [read[version](group) for version, group in own_groups("cpu")]


def _second(group: Path) -> float | None:
    """Parse a version 2 limit: ``50000 100000`` is half a core, ``max 100000`` is none."""
    words = kernel_text(group / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _first(group: Path) -> float | None:
    """Parse a version 1 limit, where -1 is none."""
    quota, period = (kernel_text(group / f"cpu.cfs_{one}_us") for one in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


class UsableMemory(NamedTuple):
    """Memory that this process and its children may use, and how much of it is free."""

    total_bytes: int
    available_bytes: int


def usable_memory(environment: Mapping[str, str] = os.environ) -> UsableMemory:
    """Return the machine's memory, within the limits of control groups and an allocation.

    Args:
        environment: tells what an allocation gives it, which not every site enforces.
    """
    machine = psutil.virtual_memory()
    limits = [UsableMemory(machine.total, machine.available), *_limits()]
    if (granted := read_allocation_limits(environment).memory_bytes) is not None:
        limits.append(UsableMemory(granted, granted))
    return UsableMemory(*map(min, zip(*limits, strict=True)))


def _limits() -> list[UsableMemory]:
    """Return the memory limits of this process's control groups, and of those above them."""
    names = {2: ("memory.max", "memory.current"), 1: _FIRST}
    found = (_limit(group, *names[version]) for version, group in own_groups("memory"))
    return [one for one in found if one is not None]


_FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _limit(group: Path, most: str, used: str) -> UsableMemory | None:
    """Return a group's memory limit; ``None`` if it has none. Cached files count as free.

    A group of version 1 without a limit has one near the largest number: the machine has less.
    """
    limit, use = kernel_text(group / most), kernel_text(group / used)
    if not limit.isdecimal():
        return None
    held = max(0, int(use or 0) - _cached(group))
    return UsableMemory(int(limit), max(0, int(limit) - held))


def _cached(group: Path) -> int:
    """Return the bytes of cached files that the kernel frees when they are needed."""
    lines = dict(line.split() for line in kernel_text(group / "memory.stat").splitlines())
    return int(lines.get("inactive_file", lines.get("total_inactive_file", "0")))
