"""Availability records: the resources that a machine's owner offers to the cluster."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class Drain(Record, frozen=True):
    """The owner wants the machine back: it takes no new jobs.

    Args:
        since_s: Unix time.
        until_s: Unix time at which it takes jobs again; ``None`` = when its owner says so.
        ends_jobs: whether running jobs are ended, too.
    """

    since_s: float
    reason: str = ""
    until_s: float | None = None
    ends_jobs: bool = False


class Availability(Record, frozen=True):
    """The resources that a node offers; by default everything, always.

    Args:
        hours: like ``Mon-Fri 19:00-07:00``, in the node's local time; empty = always.
        is_strict: whether jobs that still run at the end of the hours are ended.
        gpus: indices; ``None`` = all of them.
        memory_bytes: of each GPU; ``None`` = all of it.
        drain: ``None`` if it takes jobs.
    """

    hours: str = ""
    is_strict: bool = False
    gpus: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    drain: Drain | None = None

    def offers_gpu(self, index: int) -> bool:
        return self.gpus is None or index in self.gpus

    def memory_of(self, free_bytes: int) -> int:
        """Return how much of a GPU's memory is offered."""
        return free_bytes if self.memory_bytes is None else min(free_bytes, self.memory_bytes)
