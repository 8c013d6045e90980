"""Time left: right for steps that differ, from one third of a job on, and as sure as it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_mntrain.metrics.rows.job_rows import JobRows
from jupyter_mntrain.metrics.time_left import Recurring, TimeLeft
from tests.rulers.plays import PLAYS, Turn

TURNS = {play.name: play.turn for play in PLAYS}


def seen(turn: Callable[[int], Turn], total: int) -> list[tuple[int, float, TimeLeft | None]]:
    """After every step of a job: what is left in truth, and what is said."""
    told, recurring, before = [], Recurring(), Turn(0.0)
    for step in range(1, total + 1):
        now = turn(step)
        is_long = now.seconds > 1.0
        recurring.take(
            {
                "step": step,
                "steps_s": now.seconds,
                "long_s": now.seconds if is_long else 0.0,
                "evaluation_s": before.evaluation_s,
                "saving_s": before.saving_s,
                "sampling_s": 0.0,
            },
            1,
        )
        after = [turn(one) for one in range(step + 1, total + 1)]
        left = now.evaluation_s + now.saving_s
        left += sum(one.seconds + one.evaluation_s + one.saving_s for one in after)
        told.append((step, left, recurring.time_left(step, total)))
        before = now
    return told


@pytest.mark.parametrize("name", ["equal", "lengths", "pauses"])
@pytest.mark.parametrize("total", [60, 300])
def test_what_recurs_is_counted(name: str, total: int) -> None:
    told = [one for one in seen(TURNS[name], total) if total / 3 <= one[0] < total - 1]
    # After a step that is evaluated, nobody knows yet that the evaluation begins now.
    known = [one for one in told if one[0] % 10]
    for step, left, said in known:
        assert said is not None or step < 0.7 * total, step
        assert said is None or said.seconds == pytest.approx(left, rel=0.1), step
    inside = [said.low_s <= left <= said.high_s for _, left, said in known if said]
    assert sum(inside) >= 0.9 * len(inside)


def test_nothing_is_said_before_it_can_be_known_nor_at_the_end() -> None:
    told = seen(TURNS["equal"], 20)
    assert [said for _, _, said in told[:4]] == [None] * 4
    assert told[-1][2] is None
    swinging = seen(lambda step: Turn(0.1 if step < 6 else 0.9), 20)
    assert swinging[6][2] is None, "nobody knows how it goes on"


def test_a_job_without_rows_has_no_time_left() -> None:
    assert JobRows().recurring.time_left(0, 10) is None


def test_of_a_few_unlike_steps_the_mean_itself_is_not_known() -> None:
    """Whatever their halves have in common."""
    unlike = [0.9, 0.9, 0.3, 0.5, 0.5, 0.3]  # the first two never count
    told = seen(lambda step: Turn(unlike[(step - 1) % 6]), 60)
    assert [one for *_, one in told[:8]] == [None] * 8
