"""Allocation limits: reads a process's share of an allocation from its environment. Pure.

Only this room knows variables of schedulers. Sources: the manual pages of sbatch and srun of
SLURM (OUTPUT ENVIRONMENT VARIABLES), and NVIDIA's container toolkit.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.model._record import Record

CPUS = "SLURM_CPUS_ON_NODE"
MEMORY = "SLURM_MEM_PER_NODE"
MEMORY_OF_A_CPU = "SLURM_MEM_PER_CPU"
"""Both in MiB; 0 is all that the machine has."""
JOB = "SLURM_JOB_ID"
END = "SLURM_JOB_END_TIME"
"""Unix time; since SLURM 22.05.9."""
NOTICE = "MNTRAIN_NOTICE_S"
"""Seconds from being told to end to the end, where a scheduler gives enough for a save."""
GPUS = "CUDA_VISIBLE_DEVICES"
GPUS_OF_A_CONTAINER = "NVIDIA_VISIBLE_DEVICES"
INSTANCE = "MIG-"

_MIB = 1 << 20


class AllocationLimits(Record, frozen=True):
    """The limits of an allocation; ``None``: unknown.

    Args:
        gpus: as ``CUDA_VISIBLE_DEVICES`` names them.
        is_scheduled: whether a scheduler started the process.
        ends_s: Unix time at which it is over at the latest.
        notice_s: from being told to end to the end; jobs save in it.
    """

    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: str | None = None
    is_scheduled: bool = False
    ends_s: float | None = None
    notice_s: float | None = None


def read_allocation_limits(environment: Mapping[str, str]) -> AllocationLimits:
    """Read the limits from an environment; values that cannot be parsed are ignored."""
    cpus = _number(environment, CPUS)
    memory, each = _number(environment, MEMORY), _number(environment, MEMORY_OF_A_CPU)
    if memory is None and cpus is not None and each is not None:
        memory = cpus * each
    return AllocationLimits(
        cpus=cpus,
        memory_bytes=None if memory is None else memory * _MIB,
        gpus=_visible_devices(environment),
        is_scheduled=JOB in environment,
        ends_s=_number(environment, END),
        notice_s=_number(environment, NOTICE),
    )


def _visible_devices(environment: Mapping[str, str]) -> str | None:
    """Return ``CUDA_VISIBLE_DEVICES``, which a container with a MIG instance may lack."""
    told, given = environment.get(GPUS), environment.get(GPUS_OF_A_CONTAINER, "")
    return given if told is None and given.startswith(INSTANCE) else told


def _number(environment: Mapping[str, str], name: str) -> int | None:
    """Read a count; 0 means no limit."""
    text = environment.get(name, "")
    return int(text) or None if text.isdecimal() else None
