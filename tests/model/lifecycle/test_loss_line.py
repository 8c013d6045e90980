"""Loss line: small whatever the number of steps, and true to every extreme."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.lifecycle.loss_line import MOST_POINTS, Losses, LossLine
from jupyter_mntrain.model.records.number import Number


def line_of(losses: dict[int, float]) -> LossLine:
    made = Losses()
    for step, loss in losses.items():
        made.take(0, step, loss)
    assert made.line is not None
    return made.line


def points(line: LossLine) -> dict[range, tuple[Number | None, Number | None]]:
    """By the steps of each."""
    begins = range(line.begin, line.begin + line.width * len(line.lows), line.width)
    told = zip(begins, line.lows, line.highs, strict=True)
    return {range(begin, begin + line.width): (low, high) for begin, low, high in told}


def test_a_short_run_has_a_point_per_step() -> None:
    line = line_of({1: 4.0, 2: 3.0, 4: 2.5})
    assert points(line) == {
        range(1, 2): (4.0, 4.0),
        range(2, 3): (3.0, 3.0),
        range(3, 4): (None, None),
        range(4, 5): (2.5, 2.5),
    }
    assert (line.first, line.last) == (4.0, 2.5)


@given(
    st.dictionaries(
        st.integers(0, 10**6), st.floats(0.1, 100) | st.just(math.nan) | st.just(math.inf)
    ).filter(bool)
)
def test_every_point_has_the_extremes_of_its_steps(told: dict[int, float]) -> None:
    losses = dict(sorted(told.items()))
    line = line_of(losses)
    assert len(line.lows) <= MOST_POINTS
    shown = points(line)
    assert all(sum(step in steps for steps in shown) == 1 for step in losses)
    for steps, extremes in shown.items():
        of_point = [float(f"{loss:.4g}") for step, loss in losses.items() if step in steps]
        finite = [one for one in of_point if math.isfinite(one)]
        none = "NaN" if of_point else None
        assert extremes == ((min(finite), max(finite)) if finite else (none, none))


def test_a_loss_that_is_not_finite_is_a_gap_and_told_at_the_end() -> None:
    line = line_of({1: 4.0, 2: math.nan, 3: 3.0, 4: math.inf})
    assert line.lows == line.highs == (4.0, "NaN", 3.0, "NaN")
    assert (line.first, line.last) == (4.0, "Infinity")
    assert msgspec.json.decode(msgspec.json.encode(line), type=LossLine) == line


def test_steps_made_again_take_the_place_of_the_earlier_ones() -> None:
    made = Losses()
    for step in range(1, 31):
        made.take(0, step, 40.0 - step)
    made.begin_attempt()
    made.take(0, 21, 1.5)
    assert made.line is not None
    assert made.line.lows[-3:] == (21.0, 20.0, 1.5)
    assert made.line.first == 39.0


def test_of_several_ranks_the_first_one_counts() -> None:
    made = Losses()
    for rank, loss in ((3, 9.0), (0, 2.0), (3, 8.0)):
        made.take(rank, 1, loss)
    assert made.line is not None
    assert (made.line.lows, made.line.last) == ((2.0,), 2.0)


def test_a_line_goes_on_where_it_was() -> None:
    whole, begun = Losses(), Losses()
    for step in range(1, 501):
        whole.take(0, step, 1000.0 / step)
    for step in range(1, 301):
        begun.take(0, step, 1000.0 / step)
    begun.plan(500)
    later = Losses(begun.line)
    for step in range(301, 501):
        later.take(0, step, 1000.0 / step)
    whole.plan(500)
    assert later.line == whole.line
    assert later.line is later.line
