"""Full file systems: a full one kills a rank that writes to memory that is mapped from it.

Linux kills such a program with SIGBUS: there is no error that it could print. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

import msgspec

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypothesis import Hypothesis
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import Disk
from jupyter_mntrain.model.records.job import PartStatus

FULL_BYTES = 2**20
"""A disk with less free space than this is full: file systems keep a few blocks back."""


def no_room_to_map(parts: Sequence[PartStatus], end: Problem) -> Hypothesis | None:
    """Find shared memory, or a disk of the job, that is full on a node where a rank got SIGBUS.

    Args:
        end: how the rank ended.
    """
    part = next((one for one in parts if one.node == end.node), None)
    if end.kind is not Kind.CRASHED or part is None or part.evidence is None:
        return None
    if not any(one.rank == end.rank and one.exit_code == -signal.SIGBUS for one in part.ranks):
        return None
    full = [disk for disk in part.evidence.disks if is_full(disk)]
    if not full:
        return None
    # torch and NCCL share tensors there; few programs map other files to write to them.
    disk = min(full, key=lambda one: one.use != "shared memory")
    kind = Kind.SHARED_MEMORY if disk.use == "shared memory" else Kind.DISK_FULL
    told = msgspec.structs.replace(
        end, kind=kind, cause=f"{end.cause}: {disk.path} is full", fix=fix_of(kind)
    )
    return Hypothesis(told, (f"{disk.path} has {disk.free_bytes} bytes left",))


def is_full(disk: Disk) -> bool:
    """Whether a file system is known to be full."""
    return disk.free_bytes is not None and disk.free_bytes < FULL_BYTES
