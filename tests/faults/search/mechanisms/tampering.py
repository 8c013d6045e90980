"""Tampering: mounts, limits and clocks of a host, for the length of a block."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

GROUPS = Path("/sys/fs/cgroup")
CLOCK = Path(__file__).parents[3] / "netlab" / "clock.c"


@contextmanager
def mounted(stage: Stage, name: str, where: Path, options: str) -> Iterator[None]:
    """A file system of memory on one host alone."""
    where.mkdir(parents=True, exist_ok=True)
    stage.on(name, "mount", "-t", "tmpfs", "-o", options, "none", str(where))
    try:
        yield
    finally:
        with suppress(Exception):
            # The agent keeps a job's journal open.
            stage.on(name, "umount", "--lazy", str(where))


FREE = {"freezer.state": "THAWED", "cpu.cfs_quota_us": "-1"}
"""What lifts a limit of a control group."""


@contextmanager
def control_group(controller: str, pid: int, limits: dict[str, str]) -> Iterator[Path]:
    """A control group with one process in it."""
    group = GROUPS / controller / f"mntrain-{pid}-{time.monotonic_ns()}"
    group.mkdir()
    for name, value in limits.items():
        (group / name).write_text(value)
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield group
    finally:
        for name in set(limits) & FREE.keys():
            with suppress(OSError):
                (group / name).write_text(FREE[name])
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(left)
        with suppress(OSError):
            group.rmdir()


def clock_ahead(home: Path, off_s: int) -> dict[str, str]:
    """Variables for a program on a host whose clock is so far ahead."""
    library, ahead = home / "clock.so", home / "ahead"
    if not library.exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    ahead.write_text(str(off_s))
    return {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(ahead)}


def data_address(name: str) -> str:
    return f"10.77.2.{name[-1]}"
