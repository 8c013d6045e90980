"""Bad input: what no script should report shows a figure, or n/a, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import ceil, nan
from pathlib import Path

import pytest

from jupyter_mntrain.metrics.rows.rank_rows import NO_TOKENS, NOT_WHOLE, SOME_TOKENS
from jupyter_mntrain.metrics.summarizer import ZERO_TOKENS
from jupyter_mntrain.metrics.summary import JobSummary
from tests.rulers.plays import Play, Turn, acts
from tests.rulers.reading import LATE_S, Watched, view_of
from tests.wording import says

STEPS = 40


def after(play: Play, directory: Path, steps: int = STEPS) -> JobSummary:
    """What is shown of a play that still runs."""
    played = next(islice(acts(play, directory / "ranks"), steps - 1, None))
    watched = Watched(play, directory / "agents")
    watched.take(played)
    return watched.watched(view_of(played, is_over=False), played.now_s).summary


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (lambda _: (0, 0), ZERO_TOKENS),
        (lambda step: (nan if step > 20 else 10,) * 2, SOME_TOKENS),
        (lambda _: (nan, nan), NO_TOKENS),
        (lambda _: (-5, 10), None),
        (lambda _: (10, None), None),
        (lambda _: (None, None), NO_TOKENS),
    ],
)
def test_tokens_that_are_no_count_give_no_rate_and_the_reason(
    tmp_path: Path, tokens: Callable[[int], tuple[float | None, ...]], why: str | None
) -> None:
    got = after(Play("tokens", lambda step: Turn(0.2, tokens(step)), total=60), tmp_path)
    assert got.tokens_per_s is None
    reason = got.missing["tokens_per_s"]
    assert reason == why if why else {NOT_WHOLE, NO_TOKENS} & set(reason.split("; "))
    assert (got.step, got.step_s, got.remaining_s) == (STEPS, 0.2, pytest.approx(4.0))
    assert sum(got.window.parts_s.values()) == pytest.approx(got.window.seconds)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        (lambda step: step if step < 30 else step - 10, None),
        (lambda step: ceil(step / 2), 2 * (400 - 20)),
        (lambda step: 2 * step, (400 - 80) / 2),
        (lambda _: 1, None),
        (lambda step: step if step < 30 else step + 300, None),
    ],
    ids=["go back", "repeat", "skip", "stand still", "leap"],
)
def test_steps_whose_numbers_are_odd_are_counted_as_they_were_made(
    tmp_path: Path, told: Callable[[int], int], left: float | None
) -> None:
    """What is left is a number of steps, of which the script may count each, or some."""
    got = after(Play("numbers", lambda step: Turn(0.2, step=told(step)), told=400), tmp_path)
    assert got.step == told(STEPS)
    assert (got.whole.steps, got.whole.tokens, got.lost_steps) == (STEPS, STEPS * 2000.0, 0)
    assert got.tokens_per_s == pytest.approx(10_000.0)
    assert got.elapsed_s == pytest.approx(STEPS * 0.2, abs=2 * LATE_S)
    assert got.remaining_s == (left and pytest.approx(0.2 * left, rel=0.04))
    assert left or got.missing["remaining_s"]


@pytest.mark.parametrize("total", [20, 1, 0, -5])
def test_a_total_that_is_wrong_gives_no_time_left_and_the_reason(
    tmp_path: Path, total: int
) -> None:
    got = after(Play("total", lambda _: Turn(0.2), total=60, told=total), tmp_path)
    assert got.remaining_s is None
    reason = got.missing["remaining_s"]
    if total > 0:
        assert says(f"more steps than the {total} that it reported", reason)
    assert got.step == STEPS


def test_a_job_that_never_evaluates_has_no_loss_of_it_and_no_time_for_it(tmp_path: Path) -> None:
    got = after(Play("no evaluation", lambda _: Turn(0.2), total=60), tmp_path)
    assert got.evaluation_loss is None
    assert "evaluation" not in got.window.parts_s
    assert got.remaining_s == pytest.approx(4.0)


@pytest.mark.parametrize("seconds", [1e-4, 3600.0])
def test_steps_of_any_length_have_figures(tmp_path: Path, seconds: float) -> None:
    play = Play("length", lambda _: Turn(seconds, (3, 5)), total=60)
    got = after(play, tmp_path)
    assert got.step_s == pytest.approx(seconds, rel=0.001)
    assert got.tokens_per_s == pytest.approx(8 / seconds, rel=0.001)
    assert got.remaining_s == pytest.approx(20 * seconds, rel=0.001)
    assert got.window.parts_s == {"steps": got.window.seconds}
