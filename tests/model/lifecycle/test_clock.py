"""Attempt clock: does not jump when the machine's clock is changed."""

from __future__ import annotations

import time

import pytest

from jupyter_mntrain.model.environment import CLOCK_VARIABLE
from jupyter_mntrain.model.lifecycle.clock import HeardClock, clock_of, epoch_s
from jupyter_mntrain.telemetry import Recorder


def test_a_clock_goes_by_what_the_sender_said_and_on_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = clock_of({CLOCK_VARIABLE: str(epoch_s(sent_s=5000.0))})
    before_s = clock()
    assert 5000.0 <= before_s < 5010.0
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before_s <= clock() < 5010.0


@pytest.mark.parametrize("environment", [{}, {CLOCK_VARIABLE: "noon"}])
def test_outside_of_an_attempt_it_is_the_machines_own(environment: dict[str, str]) -> None:
    assert clock_of(environment) is time.time


def test_without_a_word_of_the_sender_it_begins_with_the_machines_own() -> None:
    assert abs(epoch_s(None) + time.monotonic() - time.time()) < 1


def test_ranks_tell_the_time_of_their_attempt(tmp_path) -> None:
    environment = {CLOCK_VARIABLE: str(epoch_s(sent_s=5000.0)), "RANK": "0"}
    with Recorder(tmp_path, environment=environment) as recorder:
        recorder.step()
    assert all(
        b'"time_s":50' in line for line in (tmp_path / "rank-0.ndjson").read_bytes().splitlines()
    )


def heard(*lines: tuple[float, float]) -> HeardClock:
    clock = HeardClock()
    for time_s, arrived_s in lines:
        clock.hear(time_s, arrived_s)
    return clock


def test_another_clock_is_known_by_what_arrives_as_it_is_written() -> None:
    clock = heard((5000.0, 10.3), (5001.0, 11.1), (5002.0, 12.2))
    assert clock.ahead_s(time_s=1000.0, monotonic_s=20.0) == pytest.approx(4009.9)
    assert clock.ahead_s(time_s=1100.0, monotonic_s=120.0) == pytest.approx(4009.9)


def test_lines_that_waited_say_nothing_of_a_clock() -> None:
    backlog = [(5000.0 + number, 10.0 + 0.01 * number) for number in range(100)]
    assert heard(*backlog).ahead_s(1000.0, 20.0) == 0.0
    late = heard(*backlog, (5100.0, 400.0), (5101.0, 401.0))
    assert late.ahead_s(1000.0, 401.0) == pytest.approx(4101.0)
    late.begin()
    late.hear(5102.0, 900.0)
    assert late.ahead_s(1000.0, 401.0) == pytest.approx(4101.0)
