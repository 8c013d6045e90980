"""Control groups: those that limit this process, of both versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from jupyter_mntrain.telemetry.kernel_files import kernel_text

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

Version = Literal[1, 2]


def own_groups(controller: str) -> Iterator[tuple[Version, Path]]:
    """Directories of each group that this process is in, and of those above it.

    Args:
        controller: of version 1, like ``cpu``.
    """
    for line in kernel_text(OWN).splitlines():
        number, controllers, name = line.split(":", 2)
        own = Path(name.lstrip("/"))
        if number == "0" and not controllers:
            for group in (own, *own.parents):
                yield 2, CGROUPS / group
        elif controller in controllers.split(","):
            for group in (own, *own.parents):
                yield 1, CGROUPS / controller / group
