"""Tables of a page: bounded, downsampled evenly, exact."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jupyter_mntrain.metrics.downsampled.samples import UNKNOWN
from jupyter_mntrain.metrics.recent import RECENT_S
from jupyter_mntrain.metrics.rows.columns import CHUNK, MOST_OLDER, Table, divided, page_columns


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


def counted(**fields: float) -> dict[str, float]:
    return {"steps": 1.0, **fields}


def test_the_recent_rows_are_those_of_the_last_minute_and_count_over_wall_time() -> None:
    table = Table(("time_s", "steps", "steps_s", "wall_s", "made"), warm_up=2)
    now_s, true = 0.0, []
    for number in range(1, 9000):
        wall_s = 0.4 if number % 5 in {0, 2} else 0.1
        now_s += wall_s
        made = 8000.0 if number % 5 in {0, 2} else 100.0
        true.append((now_s, wall_s, made))
        table.append(number, counted(time_s=now_s, steps_s=wall_s, wall_s=wall_s, made=made))
        if number in {3, 50, 400, 2048, 2049, 8999}:
            rows = [one for one in true[2:] if one[0] > now_s - RECENT_S]
            assert table.recent("steps") == pytest.approx(len(rows), abs=0 if number < 8999 else 4)
            rate = (table.recent("made") or 0) / (table.recent("wall_s") or 1)
            counted_rate = sum(made for *_, made in rows) / sum(wall_s for _, wall_s, _ in rows)
            assert rate == pytest.approx(counted_rate, rel=0.02)
            assert table.total("made") == sum(one[2] for one in true)
            begin, end = table.recent_span() or (0.0, 0.0)
            assert (end, end - begin) == (now_s, pytest.approx(table.recent("wall_s")))


def test_very_many_steps_a_second_are_counted_where_rows_are_joined() -> None:
    table = Table(("time_s", "steps", "wall_s", "made"), room=0.0)
    for number in range(1, 30_001):
        table.append(number, counted(time_s=number / 500, wall_s=1 / 500, made=10.0))
    assert (table.recent("wall_s") or 0) == pytest.approx(RECENT_S, rel=0.02)
    rate = (table.recent("made") or 0) / (table.recent("wall_s") or 1)
    assert rate == pytest.approx(5000.0)
    whole = table.whole(100)
    assert sum(whole["steps"]) == 30_000
    assert divided(whole, "made", "wall_s") == pytest.approx([5000.0] * len(whole["made"]))


def test_a_count_is_not_known_where_a_part_of_it_is_not() -> None:
    table = Table(("time_s", "steps", "made"))
    for number in range(1, 5):
        made = {} if number == 3 else {"made": 1.0}
        table.append(number, counted(time_s=float(number), **made))
    assert (table.recent("made"), table.total("made"), table.total("steps")) == (None, None, 4.0)
    assert table.whole(2)["made"] == [2.0, UNKNOWN]


def test_of_a_round_at_least_all_steps_are_recent() -> None:
    table = Table(("time_s", "steps", "steps_s"), warm_up=2)
    table.round = 5
    for number in range(1, 9):
        table.append(number, counted(time_s=100.0 * number, steps_s=float(number)))
    assert table.recent("steps_s") == 4 + 5 + 6 + 7 + 8
    assert table.single("steps_s") == [4.0, 5.0, 6.0, 7.0, 8.0]


def test_rows_before_another_attempt_are_not_recent() -> None:
    table = Table(("time_s", "steps"), warm_up=2)
    for number in range(1, 6):
        table.append(number, counted(time_s=float(number)))
    table.warm_up(2)
    assert table.recent("steps") is None
    for number in range(6, 10):
        table.append(number, counted(time_s=float(number)))
    assert (table.recent("steps"), table.total("steps")) == (2.0, 9.0)
