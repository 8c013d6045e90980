"""Tables of a page: bounded, thinned evenly, exact."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jupyter_mntrain.metrics.rows.columns import CHUNK, MOST_OLDER, Table, page_columns


def test_a_table_stays_bounded_and_tells_all_of_a_long_job_equally_finely() -> None:
    table = Table(("time_s", "value"))
    steps = 40_000
    for number in range(1, steps):
        table.append(number, {"time_s": float(number), "value": float(number)})
        assert len(table) <= MOST_OLDER + 2 * CHUNK
    times = [value or 0.0 for value in table.whole(10**6)["time_s"]]
    gaps = [b - a for a, b in pairwise(times)]
    assert times[-1] == steps - 1
    assert set(gaps[-CHUNK:]) == {1.0}
    assert set(gaps[:CHUNK]) == {16.0}
    assert (
        table.since(table.joined_up_to)["time_s"]
        == times[-len(gaps) :][times.index(table.joined_up_to) :]
    )


@pytest.mark.parametrize("rows", [1, 599, 600, 601, 1500])
def test_thinning_keeps_the_mean_and_the_end(rows: int) -> None:
    table = Table(("time_s", "step", "value"))
    for number in range(1, rows + 1):
        table.append(number, {"time_s": number, "step": number, "value": 2.0})
    whole = table.whole(600)
    assert len(whole["time_s"]) <= 600
    assert whole["step"][-1] == rows
    assert set(whole["value"]) == {2.0}


def test_a_column_nobody_fills_costs_nothing() -> None:
    table = Table(("time_s", "value"))
    table.append(1, {"time_s": 1.0})
    assert page_columns(table.whole(10)) == {"time_s": (1.0,), "value": ()}


def test_steps_are_exact_whatever_their_number() -> None:
    table = Table(("time_s", "step"))
    table.append(1, {"time_s": 1790000000.123, "step": 1234567})
    assert page_columns(table.since(0)) == {"time_s": (1790000000.123,), "step": (1234567.0,)}


def test_of_a_round_the_long_step_counts_wherever_it_is() -> None:
    table, alike = (Table(("time_s", "step_s", "rate"), warm_up=2) for _ in range(2))
    table.round, now_s = 5, 0.0
    for number in range(1, 5000):
        step_s = 6.0 if number % 5 == 0 else 1.0
        now_s += step_s
        row = {"time_s": now_s, "step_s": step_s, "rate": 100 / step_s if number != 3 else None}
        for one in (table, alike):
            one.append(number, row)
        if number >= 8:
            assert table.recent("step_s") == pytest.approx(2.0)
            assert table.recent("rate") == pytest.approx(50.0)
            begin, end = table.recent_span() or (0.0, 0.0)
            assert end - begin == pytest.approx(10.0)
    assert (alike.recent("step_s"), alike.recent("rate")) == (1.0, 100.0)


def test_before_there_is_a_round_the_median_is_told() -> None:
    table = Table(("time_s", "step_s"), warm_up=2)
    table.round = 50
    for number in range(1, 52):
        table.append(number, {"time_s": float(number), "step_s": 9.0 if number == 50 else 1.0})
    assert table.recent("step_s") == 1.0
    table.append(52, {"time_s": 52.0, "step_s": 1.0})
    assert table.recent("step_s") == pytest.approx(58 / 50)
