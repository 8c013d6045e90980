"""Notice: what is told of a job, and the ways to tell it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jupyter_mntrain.model._record import Record

TIMEOUT_S = 10.0
"""Timeout for connecting to a job's webhook or a mail server, and for each of its answers."""


class Notice(Record, frozen=True):
    """One event of a job.

    Args:
        line: one sentence for people.
        body: the same for programs.
    """

    line: str
    body: dict[str, object]


class Channel(ABC):
    """A way to tell somebody. ``where`` names it in the log, without secrets."""

    where: str

    @abstractmethod
    async def send(self, notice: Notice) -> str | None:
        """Send once, within a bounded time. Returns the cause of a failure, without secrets."""
