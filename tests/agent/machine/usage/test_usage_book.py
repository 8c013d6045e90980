"""Usage book: a week of a node, in bounds, with its gaps, over restarts and damage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.usage import MOST_PARTS
from tests.agent.machine.usage.moments import Machine, heartbeat

BEGIN_S = 1_800_000_000
HOUR_S, DAY_S = 3600, 86_400
WEEK_S = 7 * DAY_S
MIDDLE_S = BEGIN_S + 3 * DAY_S


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "history", BEGIN_S)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A week: off for two hours on day 3, suspended for one on day 5, a hot second on day 2.

    Every 30 s, and every second of the last hour: that is how finely it is kept.
    """
    machine = Machine(tmp_path_factory.mktemp("week") / "history", BEGIN_S)
    end_s = BEGIN_S + WEEK_S
    machine.live(range(BEGIN_S, BEGIN_S + 2 * DAY_S, 30))
    machine.live([BEGIN_S + 2 * DAY_S], cpu=1.0, temperature=91.0)
    machine.live(range(BEGIN_S + 2 * DAY_S + 30, MIDDLE_S, 30))
    machine.book.save()
    machine.now_s = MIDDLE_S + 2 * HOUR_S
    machine.restart()
    machine.live(range(MIDDLE_S + 2 * HOUR_S, BEGIN_S + 5 * DAY_S, 30))
    machine.live(range(BEGIN_S + 5 * DAY_S + HOUR_S, end_s - HOUR_S, 30))
    machine.live(range(end_s - HOUR_S, end_s), cpu=0.5)
    return machine


def test_a_week_takes_as_much_disk_as_is_said(week: Machine) -> None:
    kept = {"node", "GPU-0", "eth0"}
    assert set(week.parts(HOUR_S)) == kept, "no interface that lists of nodes do not name"
    assert week.disk_bytes < len(kept) * 600_000


def test_its_hour_day_and_week_are_as_fine_as_is_said(week: Machine) -> None:
    hour, day, whole = (week.line(span) for span in (HOUR_S - 1, DAY_S - 60, WEEK_S))
    assert hour.mean == (0.5,) * HOUR_S
    assert (hour.low, hour.high) == ((), ())
    assert len(day.mean) == DAY_S // 60
    assert (day.mean[0], day.mean[-1]) == (0.25, 0.5)
    assert len(whole.mean) == WEEK_S // 600 + 1
    assert (whole.mean[1], whole.mean[-1]) == (0.25, 0.5)


def test_a_second_that_was_higher_is_seen_in_a_week(week: Machine) -> None:
    line = week.line(WEEK_S, 300)
    at = line.high.index(1.0)
    assert line.low[at] == 0.25
    assert 0.25 < line.mean[at] < 0.28
    temperature = week.line(WEEK_S, 300, "GPU-0", "temperature_c")
    assert temperature.high[at] == 91.0
    assert temperature.low[at] == 40.0


def test_gaps_are_gaps_and_say_why(week: Machine) -> None:
    off, suspended = week.gaps(WEEK_S - 1200)
    assert (off.begin_s, off.end_s, off.state) == (MIDDLE_S, MIDDLE_S + 2 * HOUR_S, "off")
    assert (suspended.end_s - suspended.begin_s, suspended.state) == (HOUR_S, "suspended")
    line, span = week.line(WEEK_S, 100_000), week.span(WEEK_S, 100_000)
    first = (MIDDLE_S - span.begin_s) // 600
    assert line.mean[first : first + 12] == (None,) * 12
    assert None not in (line.mean[first - 1], line.mean[first + 12])
    assert week.gaps(DAY_S - 60) == ()


def test_points_are_at_most_as_many_as_asked_and_stay_where_they_are(week: Machine) -> None:
    for last_s in (600, HOUR_S, DAY_S, WEEK_S):
        span = week.span(last_s, 100)
        assert 25 <= span.points <= 100
        assert span.begin_s % span.step_s == 0
        assert span.begin_s <= max(week.now_s - last_s, BEGIN_S) + 600


def test_what_a_card_does_not_say_has_no_line(week: Machine) -> None:
    assert [line.figure for line in week.parts(HOUR_S)["GPU-0"].lines] == [
        "utilization",
        "memory_bytes",
        "temperature_c",
    ]


def test_an_interface_tells_the_ranks_part_of_its_traffic(week: Machine) -> None:
    out, own = (
        week.line(60, part="eth0", figure=figure)
        for figure in ("sent_bytes_per_s", "own_sent_bytes_per_s")
    )
    assert (out.mean[-1], own.mean[-1]) == (1000.0, 900.0)


def test_a_week_is_not_in_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "history", BEGIN_S)
    machine.live(range(BEGIN_S, BEGIN_S + 1200))
    tracemalloc.start()
    try:
        machine.live(range(BEGIN_S + 1200, BEGIN_S + 2400))
        machine.book.save()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000


def test_a_restarted_agent_knows_what_came_before(machine: Machine) -> None:
    machine.live(range(BEGIN_S, BEGIN_S + 100), cpu=1.0)
    machine.book.save()
    machine.now_s = BEGIN_S + 130.0
    machine.restart()
    machine.live(range(BEGIN_S + 130, BEGIN_S + 200), cpu=0.0)
    line = machine.line(199)
    assert line.mean == (1.0,) * 100 + (None,) * 30 + (0.0,) * 70
    (gap,) = machine.gaps(199)
    assert (gap.begin_s, gap.end_s, gap.state) == (BEGIN_S + 100, BEGIN_S + 130, "off")
    # Of the second minute the agent before took 40 s, and this one 0 of its last 10.
    first, second, third, _ = machine.line(DAY_S).mean[-4:]
    assert (first, second) == (1.0, 1.0)
    assert third == 0.0
    assert machine.parts(60)["GPU-0"].model == "RTX"


def test_a_gap_that_began_before_the_time_asked_for_is_told(machine: Machine) -> None:
    machine.live(range(BEGIN_S, BEGIN_S + 100))
    machine.book.save()
    machine.now_s = BEGIN_S + 2 * HOUR_S
    machine.restart()
    machine.live(range(BEGIN_S + 2 * HOUR_S, BEGIN_S + 2 * HOUR_S + 60))
    (gap,) = machine.gaps(600)
    assert (gap.end_s, gap.state) == (BEGIN_S + 2 * HOUR_S, "off")


def test_a_new_node_took_nothing_before_its_first_second(machine: Machine) -> None:
    machine.live(range(BEGIN_S, BEGIN_S + 60))
    (gap,) = machine.gaps(HOUR_S)
    assert (gap.end_s, gap.state) == (BEGIN_S, "before")
    assert machine.gaps(30) == ()


def test_a_clock_that_is_set_back_loses_nothing_else(machine: Machine) -> None:
    machine.live(range(BEGIN_S, BEGIN_S + 600))
    machine.live(range(BEGIN_S + 300, BEGIN_S + 900), cpu=1.0)
    assert machine.line(899).mean == (0.25,) * 300 + (1.0,) * 600


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 5000])
def test_damaged_files_count_as_not_known(machine: Machine, damage: bytes) -> None:
    machine.live(range(BEGIN_S, BEGIN_S + 60))
    machine.book.save()
    for file in machine.directory.iterdir():
        file.write_bytes(damage)
    machine.restart()
    machine.live(range(BEGIN_S + 60, BEGIN_S + 70))
    known = [value for value in machine.line(69).mean if value is not None]
    assert known == [0.25] * 10


def test_the_number_of_parts_is_bounded(machine: Machine) -> None:
    machine.book.take(heartbeat(BEGIN_S, gpus=MOST_PARTS + 10), {}, ())
    machine.book.save()
    assert len(list(machine.book.parts())) == MOST_PARTS


def test_a_full_disk_loses_no_other_second(machine: Machine) -> None:
    machine.directory.parent.joinpath("history").write_text("not a directory")
    machine.live(range(BEGIN_S, BEGIN_S + 60))
    with pytest.raises(OSError, match="history"):
        machine.book.save()
    machine.directory.unlink()
    assert machine.line(59).mean == (0.25,) * 60


def test_a_card_that_was_removed_a_week_ago_is_forgotten(machine: Machine) -> None:
    machine.live([BEGIN_S])
    machine.book.save()
    machine.now_s = BEGIN_S + 8.0 * DAY_S
    machine.restart()
    machine.book.take(heartbeat(machine.now_s, gpus=0), {}, {"eth0"})
    machine.book.save()
    assert set(machine.parts(60)) == {"node", "eth0"}
    assert not list(machine.directory.glob("gpu*"))
