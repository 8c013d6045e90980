"""Slowness watch: starts and ends a job's slowdowns, based on what its nodes measured."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.slowness import SlowPart, judge_slowness
from jupyter_mntrain.model.records.job import Episode
from jupyter_mntrain.model.records.pressure import Pressure

UNKNOWN_AFTER_S = 10.0
"""A slowdown without a known cause is reported this much later: looking at stacks takes time."""
OVER_AFTER_S = 4.0
"""A slowdown has ended when it was not seen for this long."""
BETTER_AFTER_S = 8.0
"""Another cause replaces the first if it is the better one for this long."""


TIMES_CHANGED = 1.5
"""A slowdown is reported again when it is this many times worse or better."""


class SlownessWatch:
    """Watches one attempt for slowdowns."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._told: SlowPart | None = None
        """What the current slowdown says; ``None``: an earlier agent has said it."""
        self._other: tuple[SlowPart, float] | None = None
        """What is seen in its place, and since when."""

    def look(
        self, known: tuple[Episode, ...], pressures: Mapping[str, Pressure], now_s: float
    ) -> tuple[Episode, ...]:
        """Return the current slowdowns. Call about once a second.

        Args:
            known: those until now, the last one perhaps not over.
            now_s: Unix time, by the clock of the attempt.
        """
        current = known[-1] if known and known[-1].end_s is None else None
        found = judge_slowness(pressures)
        if found is None:
            self._first_s = self._other = None
            if current is None or now_s - self._last_s < OVER_AFTER_S:
                return known
            return (*known[:-1], current.ended(now_s))
        self._last_s = now_s
        self._first_s = now_s if self._first_s is None else self._first_s
        if current is None:
            if _is_unknown(found.problem) and now_s - self._first_s < UNKNOWN_AFTER_S:
                return known
            self._told = found
            return (*known, _slowdown(found, None, now_s))
        if self._told is None and _place(found.problem) == _place(current.problem):
            self._told = found
        if self._told is not None and _is_same(found, self._told):
            self._other = None
            return known
        return self._exchanged(known, current, found, now_s)

    def _exchanged(
        self, known: tuple[Episode, ...], current: Episode, found: SlowPart, now_s: float
    ) -> tuple[Episode, ...]:
        """Replace the current cause by another one that has been seen for a while.

        Soon after the beginning the first one was wrong; later it is over, and another has begun.
        """
        if self._other is None or not _is_same(found, self._other[0]):
            self._other = (found, now_s)
        since_s, began_s = self._other[1], current.problem.time_s or now_s
        was_unknown = _is_unknown(current.problem)
        patience_s = BETTER_AFTER_S + UNKNOWN_AFTER_S * _is_unknown(found.problem)
        if not was_unknown and now_s - since_s < patience_s:
            return known
        is_correction = was_unknown or since_s - began_s < UNKNOWN_AFTER_S + BETTER_AFTER_S
        is_alike = self._told is not None and _evidence(found) == _evidence(self._told)
        self._told, self._other = found, None
        if is_correction or is_alike:
            return (*known[:-1], _slowdown(found, began_s, now_s))
        return (*known[:-1], current.ended(since_s), _slowdown(found, since_s, now_s))


def _slowdown(found: SlowPart, began_s: float | None, seen_s: float) -> Episode:
    began_s = found.problem.time_s if began_s is None else began_s
    problem = msgspec.structs.replace(found.problem, time_s=began_s, seen_s=seen_s)
    return Episode(problem=problem, label=found.label)


def _is_unknown(problem: Problem) -> bool:
    return problem.kind is Kind.SLOW_JOB


def _place(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.node, problem.rank


def _evidence(found: SlowPart) -> tuple[object, ...]:
    return *_place(found.problem), found.evidence


def _is_same(one: SlowPart, other: SlowPart) -> bool:
    """Return whether a slowdown is unchanged: the same evidence and place, and about as slow."""
    worse = max(one.times, other.times) / max(min(one.times, other.times), 1e-9)
    return _evidence(one) == _evidence(other) and one.where == other.where and worse < TIMES_CHANGED
