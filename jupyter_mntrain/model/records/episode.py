"""Episode: a time in which something hurt a job, for its history."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SLOWNESS
from jupyter_mntrain.model.failure.problem import Problem

MOST_KEPT = 40
"""Slowdowns, stalls and warnings that a job's record keeps: newer ones, and those not over."""


class Episode(Record, frozen=True):
    """A time in which a job was slower than before, stalled, or had a warning.

    Args:
        problem: why; it began at its ``time_s``.
        label: a few words for a chart: ``node2 r1 3.1x slower``.
        end_s: Unix time; ``None`` = it still is.
    """

    problem: Problem
    label: str
    end_s: float | None = None
    is_stall: bool = False

    @property
    def is_slowdown(self) -> bool:
        """Whether the job ran more slowly than before."""
        return not self.is_stall and self.problem.kind in SLOWNESS

    def ended(self, time_s: float) -> Episode:
        """Return the episode with its end at ``time_s``, unless it had ended before."""
        return self if self.end_s else msgspec.structs.replace(self, end_s=time_s)


def newest(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    """Return the episodes that a record keeps: the current ones, and the latest of the others."""
    kept = sorted(episodes, key=lambda one: one.end_s or float("inf"))[-MOST_KEPT:]
    return tuple(sorted(kept, key=lambda one: one.problem.time_s or 0.0))
