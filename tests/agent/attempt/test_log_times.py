"""Log times: each line has the time at which the log had it, within a bound on disk."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.agent.attempt.supervisor import TimeStamper, marks_between, times_of


class Hand:
    """A clock moved by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def grow(log: Path, size: int) -> None:
    with log.open("ab") as file:
        file.write(b"x" * size)


def test_every_growth_has_its_time(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", Hand()
    times = TimeStamper(log, clock)
    times.note()
    assert marks_between(log, 0, 10, 1.0) == (), "there is no log"
    for second in range(3):
        clock.now_s = 100.0 + second
        grow(log, 10)
        times.note()
        times.note()
    assert marks_between(log, 0, 30, 999.0) == ((10, 100.0), (20, 101.0), (30, 102.0))
    assert marks_between(log, 0, 5, 999.0) == ((10, 100.0),)
    assert marks_between(log, 10, 20, 999.0) == ((20, 101.0),)
    assert marks_between(log, 25, 34, 999.0) == ((30, 102.0), (34, 999.0)), "written just now"
    assert times_of(log).stat().st_mode & 0o777 == 0o600


def test_a_long_log_keeps_its_newest_times_and_fewer_of_the_old(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", Hand()
    times = TimeStamper(log, clock, most=100)
    for second in range(1000):
        clock.now_s = float(second)
        grow(log, 1)
        times.note()
    marks = marks_between(log, 0, 1000, 0.0)
    assert len(marks) <= 100
    assert marks[-50:] == tuple((n + 1, float(n)) for n in range(950, 1000))
    assert all(size == time_s + 1 for size, time_s in marks)
    assert list(marks) == sorted(marks)


def test_a_disk_that_takes_nothing_costs_no_attempt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    times_of(log).mkdir()
    grow(log, 1)
    TimeStamper(log, Hand()).note()
