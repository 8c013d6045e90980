"""Allocation: the state of requested nodes, as their scheduler reports it."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import Kind
from jupyter_mntrain.model.failure.problem import Problem

AllocationState = Literal["pending", "running", "ending", "ended", "unknown"]
"""``pending``: holds nothing, also once its nodes were taken and it waits for others. ``running``:
all nodes are granted. ``unknown``: the source does not answer or knows it no more; never terminal.
"""

SlotState = Literal["waiting", "up", "down", "gone"]
"""``down``: the source holds the node for us, and says that it does not work. ``gone``: it has
taken the node back."""

Outcome = Literal["done", "failed", "canceled"]

LONGEST_EXPECTED_S = 7 * 86_400.0
"""An expected start that is further away is no forecast: schedulers assume a year for jobs without
a time limit."""


class Slot(Record, frozen=True):
    """One node of an allocation, whose name stays the same if its machine is replaced.

    Args:
        name: of its node in the cluster: ``slurm-0``.
        host: the machine, by its name in the scheduler; empty as long as there is none.
        problem: why it is down or gone.
    """

    name: str
    state: SlotState = "waiting"
    host: str = ""
    problem: Problem | None = None


class Waiting(Record, frozen=True):
    """Why an allocation is pending.

    Args:
        word: the scheduler's own, for those who know it: ``Resources``.
        reason: in ours; its kind says whether waiting can help, its fix what does.
        expected_start_s: Unix time, as the scheduler reckons now; ``None`` = it does not.
    """

    word: str
    reason: Problem
    expected_start_s: float | None = None

    @property
    def can_end(self) -> bool:
        """Whether waiting may help."""
        return self.reason.kind is not Kind.NEVER_GRANTED

    def forecast_s(self, now_s: float) -> float | None:
        """Return the seconds until the expected start; ``None`` if unknown, past, or implausibly
        far.
        """
        if self.expected_start_s is None:
            return None
        ahead_s = self.expected_start_s - now_s
        return ahead_s if 0 < ahead_s <= LONGEST_EXPECTED_S else None


class Allocation(Record, frozen=True):
    """The requested nodes, as the scheduler describes them now.

    Args:
        id: the source's own: the scheduler's number of it.
        slots: always as many as were asked for, in their order.
        waiting: while it is pending.
        started_s, ends_s: Unix times of the current grant; ``ends_s`` is that of its time limit.
        grants: how often nodes were granted; above 1, others had been taken away before.
        outcome: once it has ended, or while it ends, if that is known then.
        problem: why, unless it was done or somebody canceled it.
    """

    id: str
    source: str
    state: AllocationState
    slots: tuple[Slot, ...]
    waiting: Waiting | None = None
    submitted_s: float | None = None
    started_s: float | None = None
    ends_s: float | None = None
    grants: int = 0
    outcome: Outcome | None = None
    problem: Problem | None = None

    @property
    def is_over(self) -> bool:
        return self.state == "ended"
