"""Save intervals: by steps, by minutes, and by how often jobs fail."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import pytest

from jupyter_mntrain.recipe.sections import CheckpointSection
from jupyter_mntrain.train.checkpoint import saving
from jupyter_mntrain.train.checkpoint.saving import (
    GUESSED_SAVE_S,
    LEAST_INTERVAL_S,
    SaveIntervals,
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(saving, "monotonic", made)
    return made


def test_steps_are_counted_unless_time_is() -> None:
    made = SaveIntervals(CheckpointSection(interval_steps=3))
    assert [step for step in range(1, 8) if made.is_due(step, is_time=True)] == [3, 6]
    assert not made.is_late
    made.section = CheckpointSection(interval_steps=0)
    assert not any(made.is_due(step, is_time=True) for step in range(1, 8))
    made.section = CheckpointSection(interval_steps=3, interval_minutes=1)
    assert made.is_due(1, is_time=True)
    assert not made.is_due(3, is_time=False)


def test_minutes_begin_anew_with_each_save(clock: Clock) -> None:
    made = SaveIntervals(CheckpointSection(interval_minutes=2))
    clock.now += 119
    assert not made.is_late
    clock.now += 1
    assert made.is_late
    made.saved(0.1)
    assert not made.is_late


@pytest.mark.parametrize("hours", [1.0, 24.0, 1000.0])
def test_what_saves_and_failures_cost_is_least(hours: float) -> None:
    made = SaveIntervals(CheckpointSection(failure_hours=hours))
    made.saved(20.0)

    def lost(every_s: float) -> float:
        """Share of the time: saves, and half an interval for each failure."""
        return 20.0 / every_s + every_s / 2 / (hours * 3600)

    assert lost(made.every_s) < min(lost(made.every_s * 0.9), lost(made.every_s * 1.1))


def test_before_the_first_save_its_time_is_guessed_and_never_is_one_due_at_once(
    clock: Clock,
) -> None:
    made = SaveIntervals(CheckpointSection(failure_hours=24))
    assert made.every_s == pytest.approx(sqrt(2 * GUESSED_SAVE_S * 24 * 3600))
    made.saved(0.0)
    assert made.every_s == LEAST_INTERVAL_S
    clock.now += LEAST_INTERVAL_S
    assert made.is_late
