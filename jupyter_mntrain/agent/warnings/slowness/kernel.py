"""Kernel: reads Linux counters of a process or this machine. What does not exist counts as 0."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

import psutil

from jupyter_mntrain.telemetry.kernel_files import kernel_text

PROC = Path("/proc")
CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
NANOSECONDS = 1e-9
MICROSECONDS = 1e-6

_STATE, _MAJOR_FAULTS, _USER, _SYSTEM = 0, 9, 11, 12
"""Fields of ``/proc/PID/stat`` after the name; see proc(5)."""


def stat_of(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name; empty if the process is gone."""
    text = kernel_text(PROC / str(pid) / "stat")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def state_of(pid: int) -> str:
    """Return the state letter of a process's main thread; empty if it is gone."""
    fields = stat_of(pid)
    return fields[_STATE] if fields else ""


def cpu_of(fields: list[str]) -> float:
    """Return a process's CPU seconds, from :func:`stat_of`."""
    return (int(fields[_USER]) + int(fields[_SYSTEM])) * TICK_S if fields else 0.0


def faults_of(fields: list[str]) -> int:
    """Return the pages that a process read back from disk, from :func:`stat_of`."""
    return int(fields[_MAJOR_FAULTS]) if fields else 0


def scheduled(pid: int) -> tuple[float, float]:
    """Return the seconds that a process's main thread ran, and that it was ready without a core."""
    words = kernel_text(PROC / str(pid) / "schedstat").split()
    if len(words) < 2:
        return 0.0, 0.0
    return int(words[0]) * NANOSECONDS, int(words[1]) * NANOSECONDS


def read_bytes(pid: int) -> int:
    """Return the bytes that a process has read from disks, not from the page cache or sockets."""
    found = re.search(r"^read_bytes: (\d+)", kernel_text(PROC / str(pid) / "io"), re.MULTILINE)
    return int(found[1]) if found else 0


def throttled(pid: int) -> float:
    """Return the seconds for which CPU limits of a process's control groups have stopped it."""
    for line in kernel_text(PROC / str(pid) / "cgroup").splitlines():
        number, controllers, name = line.split(":", 2)
        if number == "0" and not controllers:
            root, what, unit_s = CGROUPS, "throttled_usec", MICROSECONDS
        elif "cpu" in controllers.split(","):
            root, what, unit_s = CGROUPS / "cpu", "throttled_time", NANOSECONDS
        else:
            continue
        own = Path(name.lstrip("/"))
        texts = [kernel_text(root / group / "cpu.stat") for group in (own, *own.parents)]
        found = [re.search(rf"^{what} (\d+)", text, re.MULTILINE) for text in texts]
        if any(found):
            return sum(int(one[1]) for one in found if one) * unit_s
    return 0.0


def pressure_of(what: str) -> float:
    """Return the seconds in which any process of this machine waited for ``io``, ``memory`` or
    ``cpu``.
    """
    found = re.search(r"^some .*total=(\d+)", kernel_text(PROC / "pressure" / what), re.MULTILINE)
    return int(found[1]) * MICROSECONDS if found else 0.0


def machine_cpu() -> float:
    """Return the CPU seconds that all programs of this machine have used, including containers."""
    first = kernel_text(PROC / "stat").partition("\n")[0].split()[1:9]
    # Guests' time is part of user time; idle time and waits for disks are none. See proc(5).
    return sum(int(one) for one in [*first[:3], *first[5:]]) * TICK_S


def clock_hz() -> float:
    """Return the mean clock rate of the processors; 0 if unknown."""
    texts = [kernel_text(one) for one in CPUS.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    known = [int(text) * 1e3 for text in texts if text.isdecimal()]
    return sum(known) / len(known) if known else 0.0


class Competitors:
    """Finds the process that uses the most CPU, except those of a job."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._before_s: float | None = None

    def look(self, now_s: float, besides: Collection[int]) -> tuple[str, float]:
        """Return its name and pid, and the cores used since the last call; empty at first."""
        used = {pid: cpu_of(stat_of(pid)) for pid in psutil.pids()}
        before, before_s = self._before, self._before_s
        self._before, self._before_s = used, now_s
        if before_s is None or now_s <= before_s:
            return "", 0.0
        grown = {
            pid: (seconds - before[pid]) / (now_s - before_s)
            for pid, seconds in used.items()
            if pid in before and pid not in besides
        }
        pid = max(grown, key=lambda one: grown[one], default=0)
        name = kernel_text(PROC / str(pid) / "comm")
        return (f"{name}, pid {pid}", grown[pid]) if name else ("", 0.0)

    def forget(self) -> None:
        self._before, self._before_s = {}, None


def family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    try:
        return {pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return {pid}
