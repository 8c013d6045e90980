"""Slowness watch: begins and ends the slow-downs of a job, from what its nodes measured."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.slowness import SlowPart, judge_slowness
from jupyter_mntrain.model.records.pressure import Pressure, Slowdown

UNKNOWN_AFTER_S = tunables.seconds("slowness.unknown_after_s")
OVER_AFTER_S = tunables.seconds("slowness.over_after_s")
BETTER_AFTER_S = tunables.seconds("slowness.better_after_s")
MOST_KEPT = tunables.count("slowness.kept")


class SlownessWatch:
    """Watches one attempt."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._better: tuple[object, float] | None = None

    def look(
        self, known: tuple[Slowdown, ...], pressures: Mapping[str, Pressure], now_s: float
    ) -> tuple[Slowdown, ...]:
        """Return the slow-downs after this look; call about once a second.

        Args:
            known: those until now, the last one perhaps not over.
            now_s: Unix time, by the clock of the attempt.
        """
        current = known[-1] if known and known[-1].end_s is None else None
        found = judge_slowness(pressures)
        if found is None:
            self._first_s = self._better = None
            if current is None or now_s - self._last_s < OVER_AFTER_S:
                return known
            return (*known[:-1], msgspec.structs.replace(current, end_s=now_s))
        self._last_s = now_s
        self._first_s = now_s if self._first_s is None else self._first_s
        is_unknown = found.problem.kind is Kind.SLOW_JOB
        if current is None:
            if is_unknown and now_s - self._first_s < UNKNOWN_AFTER_S:
                return known
            return (*known, _slowdown(found))[-MOST_KEPT:]
        if is_unknown or _place(found) == _place_of(current):
            self._better = None
            return known
        if self._better is None or self._better[0] != _place(found):
            self._better = (_place(found), now_s)
        was_unknown = current.problem.kind is Kind.SLOW_JOB
        if not was_unknown and now_s - self._better[1] < BETTER_AFTER_S:
            return known
        problem = msgspec.structs.replace(found.problem, time_s=current.problem.time_s)
        return (*known[:-1], Slowdown(problem=problem, label=found.label))


def _slowdown(found: SlowPart) -> Slowdown:
    return Slowdown(problem=found.problem, label=found.label)


def _place(found: SlowPart) -> tuple[object, ...]:
    return found.problem.kind, found.problem.node, found.problem.rank


def _place_of(slowdown: Slowdown) -> tuple[object, ...]:
    return slowdown.problem.kind, slowdown.problem.node, slowdown.problem.rank
