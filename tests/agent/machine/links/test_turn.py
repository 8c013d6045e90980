"""Turn to measure: one driver's at a time, for as long as it says so, and next to no job
unasked."""

from __future__ import annotations

import pytest

from jupyter_mntrain.agent.machine.links.turn import MeasureTurn
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.probes import MEASURE_LEASE_S, MeasureLease
from tests.wording import says

JOBS = {"eth1": JobId("j-01234567")}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turn(clock: Clock) -> MeasureTurn:
    return MeasureTurn(clock)


def asked(key: str, **fields: object) -> MeasureLease:
    return MeasureLease(key=key, who=f"{key}@laptop", **fields)  # type: ignore[arg-type]


def test_others_hear_who_measures_until_it_is_given_back(turn: MeasureTurn) -> None:
    turn.take(asked("kim"), {}, "node1")
    turn.take(asked("kim"), {}, "node1")
    turn.refuse_others("kim", "node1")
    for key in ("", "lee"):
        with pytest.raises(RefusedError) as caught:
            turn.refuse_others(key, "node1")
        assert caught.value.kind is Kind.TOO_MANY
        assert says("kim@laptop is measuring", str(caught.value))
    turn.take(asked("lee", expires_in_s=0.0), {}, "node1")  # not lee's to give back
    with pytest.raises(RefusedError):
        turn.take(asked("lee"), {}, "node1")
    turn.take(asked("kim", expires_in_s=0.0), {}, "node1")
    turn.take(asked("lee"), {}, "node1")


def test_a_driver_that_died_loses_its_turn(turn: MeasureTurn, clock: Clock) -> None:
    turn.take(asked("kim", expires_in_s=1e9), {}, "node1")
    clock.now_s += MEASURE_LEASE_S - 1
    with pytest.raises(RefusedError):
        turn.take(asked("lee"), {}, "node1")
    clock.now_s += 2
    turn.take(asked("lee"), {}, "node1")
    with pytest.raises(RefusedError):
        turn.take(asked("kim"), {}, "node1")


def test_a_job_on_the_interface_is_named_and_comes_first(turn: MeasureTurn) -> None:
    with pytest.raises(RefusedError) as caught:
        turn.take(asked("kim", interfaces=("eth0", "eth1")), JOBS, "node1")
    assert caught.value.kind is Kind.JOBS_RUNNING
    assert says("job j-01234567 trains over eth1", str(caught.value))
    turn.take(asked("lee", interfaces=("eth0",)), JOBS, "node1")  # kim has taken nothing
    turn.take(asked("lee", interfaces=("eth1",), is_beside_jobs=True), JOBS, "node1")


def test_a_job_that_begins_ends_the_turn_at_its_next_renewal(turn: MeasureTurn) -> None:
    kim = asked("kim", interfaces=("eth1",))
    turn.take(kim, {}, "node1")
    with pytest.raises(RefusedError):
        turn.take(kim, JOBS, "node1")
