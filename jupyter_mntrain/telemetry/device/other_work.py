"""Other work: how busy this node's CPUs and GPUs are with other things than this job's ranks."""

from __future__ import annotations

import os
import time

import psutil

from jupyter_mntrain.model.records.node import Gpu
from jupyter_mntrain.telemetry.gpus import GpuReader

OTHERS_SHARE = 0.2
"""A peak is marked as disturbed if other processes used more than this share of the CPUs
meanwhile, or of the GPU just before."""

ALONGSIDE = "alongside other processes"


class OtherWork:
    """Watches other processes during one rank's measurement, from before it until :meth:`words`.

    The node's other ranks are assumed to do the same work as this one.
    """

    def __init__(self) -> None:
        self._ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._cores = os.sched_getaffinity(0)
        self._begin = self._now()

    def words(self) -> str:
        """Say what disturbed the measurement; empty if nothing did."""
        return ALONGSIDE if self.share() > OTHERS_SHARE else ""

    def share(self) -> float:
        """Return the share of the time of this process's CPUs that others use, 0..1."""
        wall, busy, own = (now - then for now, then in zip(self._now(), self._begin, strict=True))
        return max(0.0, busy - self._ranks * own) / max(wall * len(self._cores), 1e-9)

    def _now(self) -> tuple[float, float, float]:
        """Return seconds: of the clock, of busy CPUs, and of this process on them."""
        each = psutil.cpu_times(percpu=True)
        busy = sum(
            sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
            for core, times in enumerate(each)
            if core in self._cores
        )
        return time.perf_counter(), busy, time.process_time()


# Other GPU work: what shares a GPU or slows it while its peak is measured, by NVML.


UNKNOWN = "load of other processes unknown"


class OtherGpuWork:
    """Watches a GPU during a measurement, from before it is loaded until :meth:`words`.

    Args:
        uuid: of the GPU, as NVML writes it.
    """

    def __init__(self, uuid: str, reader: GpuReader) -> None:
        self._uuid = uuid
        self._reader = reader
        self._before = self._gpu()

    def words(self) -> str:
        """Say what disturbed the measurement; call it right after the last product."""
        slowed = self._reader.slowed_by(self._uuid)
        return ", ".join(one for one in (self._sharing(), slowed) if one)

    def _sharing(self) -> str:
        before, after = self._before, self._gpu()
        if before is None or after is None:
            return UNKNOWN
        others, arrived = _others(before), _others(after)
        if others is None or arrived is None:
            # A driver that hides processes, or tells their ids in another namespace: the
            # utilization may be what this rank did just before.
            is_idle = before.utilization is not None and before.utilization <= OTHERS_SHARE
            return "" if is_idle else UNKNOWN
        if arrived - others:
            return ALONGSIDE
        if not others:
            return ""
        if before.utilization is None:
            return UNKNOWN
        return ALONGSIDE if before.utilization > OTHERS_SHARE else ""

    def _gpu(self) -> Gpu | None:
        return next((one for one in self._reader.read() if one.uuid == self._uuid), None)


def _others(gpu: Gpu) -> frozenset[int] | None:
    """Return the GPU's processes besides this job's ranks; ``None`` if this rank is not listed."""
    pids = {one.pid for one in gpu.processes}
    if os.getpid() not in pids:
        return None
    return frozenset(pid for pid in pids if not _is_rank(pid))


def _is_rank(pid: int) -> bool:
    """Whether a process is this one or another child of its torchrun."""
    try:
        return pid == os.getpid() or psutil.Process(pid).ppid() == os.getppid()
    except psutil.Error:
        return False
