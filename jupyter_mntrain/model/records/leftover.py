"""Leftovers: processes of a job that have not ended."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record

_KERNEL_STATES = {
    "D": "uninterruptible",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
}

NAMED_PROCESSES = 3
"""Most that a sentence names: more would hide what it says."""


class Leftover(Record, frozen=True):
    """A process of the job that has not ended, or could not be killed.

    Args:
        status: its state as the kernel names it, like ``D (disk sleep)``.
        waits_in: function of the kernel that an uninterruptible one waits in, if known.
    """

    pid: int
    command: str
    status: str
    waits_in: str = ""

    def __str__(self) -> str:
        """Describe the process, like ``pid 123 python (uninterruptible, nfs_wait)``."""
        name = self.command.partition(" ")[0].rpartition("/")[2]
        state = _KERNEL_STATES.get(self.status[:2].strip(), self.status)
        facts = ", ".join(fact for fact in (state, self.waits_in) if fact)
        return " ".join(word for word in (f"pid {self.pid}", name, f"({facts})") if word)
