"""CPU limit: how many cores this process and its children may use."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.agent.machine.devices.control_groups import own_groups
from jupyter_mntrain.model.sources.allocation_limits import read_allocation_limits
from jupyter_mntrain.telemetry.kernel_files import kernel_text


def usable_cpus(environment: Mapping[str, str] = os.environ) -> int:
    """Number of cores that this process may keep busy, of those that it may run on."""
    return max(1, math.ceil(cores(environment)))


def cores(environment: Mapping[str, str] = os.environ) -> float:
    """Cores' worth of CPU time: limits of its control groups make it a fraction.

    Args:
        environment: tells what an allocation gives it, which not every site enforces.
    """
    limits = [limit for limit in _limits() if limit is not None]
    granted = read_allocation_limits(environment).cpus
    told = [] if granted is None else [float(granted)]
    return round(min([float(affine_cpus()), *limits, *told]), 3)


def affine_cpus() -> int:
    """Number of cores that the scheduler of the kernel lets this process run on."""
    return len(os.sched_getaffinity(0))


def _limits() -> list[float | None]:
    """Limit of each control group that this process is in, and of those above it."""
    read = {2: _second, 1: _first}
    return [read[version](group) for version, group in own_groups("cpu")]


def _second(group: Path) -> float | None:
    """Limit of a group of version 2: ``50000 100000`` is half a core, ``max 100000`` is none."""
    words = kernel_text(group / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _first(group: Path) -> float | None:
    """Limit of a group of version 1, where -1 is none."""
    quota, period = (kernel_text(group / f"cpu.cfs_{one}_us") for one in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
