"""CPU limit: how many cores this process and its children may use."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_mntrain.telemetry.kernel_files import kernel_text

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def usable_cpus() -> int:
    """Number of cores that this process may run on, respecting its CPU affinity."""
    return len(os.sched_getaffinity(0))


def cores() -> float:
    """Cores' worth of CPU time: limits of its control groups make it a fraction."""
    limits = [limit for limit in _limits() if limit is not None]
    return round(min([float(usable_cpus()), *limits]), 3)


def _limits() -> list[float | None]:
    """Limit of each control group that this process is in, and of those above it."""
    found: list[float | None] = []
    for line in kernel_text(OWN).splitlines():
        number, controllers, name = line.split(":", 2)
        own = Path(name.lstrip("/"))
        if number == "0" and not controllers:
            found += [_second(CGROUPS / group) for group in (own, *own.parents)]
        elif "cpu" in controllers.split(","):
            found += [_first(CGROUPS / "cpu" / group) for group in (own, *own.parents)]
    return found


def _second(group: Path) -> float | None:
    """Limit of a group of version 2: ``50000 100000`` is half a core, ``max 100000`` is none."""
    words = kernel_text(group / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _first(group: Path) -> float | None:
    """Limit of a group of version 1, where -1 is none."""
    quota, period = (kernel_text(group / f"cpu.cfs_{one}_us") for one in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
