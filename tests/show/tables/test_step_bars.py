"""Step bars: shares of a row are shares of the step, in any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from jupyter_mntrain.model.records.plan import StepSpan, StepSpans
from jupyter_mntrain.show.tables.plans.step_bars import MARKS, MOST_RANKS, StepBars

LANE = (
    StepSpan(kind="F", begin_s=0.0, end_s=1.0),
    StepSpan(kind="send", begin_s=0.0, end_s=4.0),
    StepSpan(kind="wait", begin_s=1.0, end_s=2.0),
    StepSpan(kind="B", begin_s=2.0, end_s=4.0),
)


def printed(bars: StepBars, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(bars)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [49, 80, 200])
def test_shares_of_a_row_are_shares_of_the_step(width: int) -> None:
    _, row, legend = printed(StepBars("predicted", StepSpans(4.0, (LANE,)), ["r0 node1"]), width)
    assert len(row) <= width
    assert row.startswith("r0 node1 ")
    lane = row.removeprefix("r0 node1 ")
    for kind, share in (("F", 0.25), ("wait", 0.25), ("B", 0.5)):
        assert abs(lane.count(MARKS[kind][0]) / len(lane) - share) <= 1 / len(lane)
        assert MARKS[kind][2] in legend
    assert MARKS["W"][2] not in legend


def test_of_many_ranks_it_says_how_many_are_not_drawn() -> None:
    many = MOST_RANKS + 2
    names = [f"r{rank}" for rank in range(many)]
    lines = printed(StepBars("predicted", StepSpans(4.0, (LANE,) * many), names), 80)
    assert sum(line.startswith("r") for line in lines) == MOST_RANKS
    assert any("2 more" in line for line in lines)


def test_a_terminal_that_is_too_narrow_gets_no_row() -> None:
    assert printed(StepBars("predicted", StepSpans(4.0, (LANE,)), ["r0 node1"]), 9) == []
