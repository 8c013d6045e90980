"""Surroundings: the container that the agent runs in, its first process, and the processors."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_mntrain.model.records.doctor.machine import Processors
from jupyter_mntrain.telemetry.kernel_files import kernel_text

_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman"}
_GROUPS = re.compile(r"(docker|kubepods|podman|lxc|containerd|garden)")


def container(root: Path, proc: Path) -> str:
    """What this process runs in; empty if in no container that is recognized."""
    for mark, name in _MARKS.items():
        if (root / mark).exists():
            return name
    found = _GROUPS.search(kernel_text(proc / "1" / "cgroup"))
    return {"kubepods": "kubernetes"}.get(found[1], found[1]) if found else ""


def first_process(proc: Path) -> str:
    """Name of PID 1, which has to reap the processes that lose their parent."""
    return kernel_text(proc / "1" / "comm")


def unreaped(proc: Path) -> int:
    """Number of ended processes that PID 1 has not reaped."""
    # "4711 (a name) Z 1 …": the name may have spaces and parentheses.
    states = (kernel_text(one).rpartition(")")[2].split()[:2] for one in proc.glob("[0-9]*/stat"))
    return sum(state == ["Z", "1"] for state in states)


def read_processors(cores: float, sysfs: Path) -> Processors:
    """Read how the processors choose their frequency."""
    frequencies = sorted((sysfs / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpufreq"))
    governors = {kernel_text(one / "scaling_governor") for one in frequencies} - {""}
    driver = next(filter(None, (kernel_text(one / "scaling_driver") for one in frequencies)), "")
    return Processors(cores=cores, governors=tuple(sorted(governors)), driver=driver)
