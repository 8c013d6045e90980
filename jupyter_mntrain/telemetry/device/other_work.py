"""Other work: how busy this node's processors are with anything but this job's ranks."""

from __future__ import annotations

import os
import time

import psutil

OTHERS_SHARE = 0.2
"""A peak is marked as disturbed if other processes used more than this share of the CPUs
meanwhile, or of the GPU just before."""

BESIDE = "next to other processes"


class OtherWork:
    """Watches one measurement of one rank: from before it to :meth:`words`. The node's other ranks
    are taken to do what this one does.
    """

    def __init__(self) -> None:
        self._ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._cores = os.sched_getaffinity(0)
        self._begin = self._now()

    def words(self) -> str:
        """What disturbed the measurement."""
        return BESIDE if self.share() > OTHERS_SHARE else ""

    def share(self) -> float:
        """Of the time of all processors that this process may run on, 0..1."""
        wall, busy, own = (now - then for now, then in zip(self._now(), self._begin, strict=True))
        return max(0.0, busy - self._ranks * own) / max(wall * len(self._cores), 1e-9)

    def _now(self) -> tuple[float, float, float]:
        """Seconds: of the clock, of busy processors, of this process on them."""
        each = psutil.cpu_times(percpu=True)
        busy = sum(
            sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
            for core, times in enumerate(each)
            if core in self._cores
        )
        return time.perf_counter(), busy, time.process_time()
