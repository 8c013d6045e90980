"""Limits of the processes that this agent starts."""

from __future__ import annotations

import resource

from jupyter_mntrain.model.records.doctor.machine import ProcessLimits


def read_limits() -> ProcessLimits:
    """Read them; ranks inherit the agent's."""
    return ProcessLimits(
        open_files=_hard(resource.RLIMIT_NOFILE),
        open_files_at_start=_soft(resource.RLIMIT_NOFILE),
        file_bytes=_soft(resource.RLIMIT_FSIZE),
        locked_memory_bytes=_soft(resource.RLIMIT_MEMLOCK),
        core_bytes=_soft(resource.RLIMIT_CORE),
        processes=_soft(resource.RLIMIT_NPROC),
    )


def _hard(which: int) -> int | None:
    return _limit(resource.getrlimit(which)[1])


def _soft(which: int) -> int | None:
    return _limit(resource.getrlimit(which)[0])


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value
