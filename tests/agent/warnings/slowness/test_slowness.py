"""Slowness: simulated jobs whose slowed rank or link is known, and jobs with normal noise."""

from __future__ import annotations

import random

import pytest

from jupyter_mntrain.agent.warnings.slowness.counters import Counters, RankCounters
from jupyter_mntrain.agent.warnings.slowness.observer import Gauge, StepPace
from jupyter_mntrain.model.ids import Rank
from tests.agent.warnings.slowness.draws import drawn, is_right, limit_s, verdict
from tests.agent.warnings.slowness.simulation import FAULTS, START_S, Fault, Pipeline


def job(fault: Fault | None, seed: int = 1, **changes: object) -> Pipeline:
    settings: dict = {"nodes": 3, "per_node": 1, "step_s": 0.2, "noise": 0.05}
    settings |= {"send_share": 0.3, "reports": "everything", "save_every": 20, **changes}
    return Pipeline(random.Random(seed), fault=fault, **settings)


@pytest.mark.parametrize("what", FAULTS)
def test_a_job_slowed_to_a_third_names_its_culprit_within_20_seconds(what: str) -> None:
    made = job(Fault(what, rank=1, begin_s=60.0, times=3.0))
    found = verdict(made, limit_s(made))
    assert found is not None
    assert is_right(made, found[1]), found
    assert found[0] > 0
    assert made.fault is not None
    assert abs(found[1].time_s - START_S - made.fault.begin_s) < 6 * made.step_s * 20
    assert found[1].fix


@pytest.mark.parametrize("seed", range(6))
def test_of_drawn_slow_downs_the_culprit_is_named(seed: int) -> None:
    made = drawn(seed, is_slowed=True)
    found = verdict(made, limit_s(made))
    assert found is not None
    assert is_right(made, found[1]), (made.fault, found)


@pytest.mark.parametrize("reports", ["everything", "steps", "nothing"])
def test_normal_noise_is_no_slow_down(reports: str) -> None:
    made = job(None, reports=reports, noise=0.2, evaluate_every=100)
    assert [known for _, known in made.run(400.0)][-1] == ()


def test_a_short_burst_is_no_slow_down_and_a_longer_one_ends_when_speed_is_back() -> None:
    burst = job(Fault("starved", 1, begin_s=60.0, times=3.0, end_s=64.0))
    assert [known for _, known in burst.run(120.0)][-1] == ()
    longer = job(Fault("starved", 1, begin_s=60.0, times=3.0, end_s=100.0))
    (slowdown,) = [known for _, known in longer.run(150.0)][-1]
    assert slowdown.end_s is not None
    assert 98 < slowdown.end_s - START_S < 120


def test_faults_that_follow_each_other_have_an_entry_each_and_the_last_one_is_told() -> None:
    faults = [
        Fault("lossy", 1, begin_s=60.0, times=3.0),
        Fault("other traffic", 1, begin_s=120.0, times=3.0),
        Fault("starved", 1, begin_s=180.0, times=3.0),
        Fault("throttled", 1, begin_s=240.0, times=3.0),
        Fault("disk", 1, begin_s=300.0, times=3.0, end_s=360.0),
    ]
    made = job(faults[0], later=tuple(faults[1:]))
    told = dict(made.run(400.0))
    found = told[400.0]
    assert [(one.problem.kind, one.problem.node) for one in found] == [
        *(("link-slow", "node2"),) * 2,
        *(("slow-rank", "node2"),) * 2,
        ("slow-disk", "node2"),
    ]
    assert len({one.problem.fix for one in found}) == len(faults)
    for entry, fault in zip(found, faults, strict=True):
        assert entry.problem.time_s is not None
        assert 0 <= entry.problem.time_s - START_S - fault.begin_s < 20
    for fault in faults:
        assert told[fault.begin_s + 40.0][-1].end_s is None, fault
    assert found[-1].end_s is not None


def test_a_stall_that_is_over_is_no_slow_down() -> None:
    pace, now_s = StepPace(), START_S

    def step(duration_s: float) -> float | None:
        nonlocal now_s
        now_s += duration_s
        pace.add(now_s, duration_s)
        pace.look(now_s)
        return pace.since_s

    assert not any(step(0.1) for _ in range(300))
    assert not any(step(duration_s) for duration_s in (20.0, *[1.0] * 3, *[0.1] * 99)), "it stood"
    assert not any(step(duration_s) for duration_s in (20.0, *[1.0] * 5)), "and once more"
    assert any(step(1.0) for _ in range(9)), "it has not been as fast again since"


def test_the_first_steps_are_not_judged() -> None:
    made = job(Fault("starved", 1, begin_s=0.0, times=3.0, end_s=3.0))
    assert [known for _, known in made.run(60.0)][-1] == ()


def test_without_a_recorder_code_that_does_something_else_is_no_slow_down() -> None:
    made = job(Fault("code", 1, begin_s=90.0, times=3.0), reports="nothing")
    assert [known for _, known in made.run(150.0)][-1] == ()


def test_what_other_programs_use_is_what_the_ranks_do_not() -> None:
    gauge = Gauge("eth1")
    for second in range(60):
        rank = RankCounters(rank=Rank(0), cpu_s=0.75 * second)
        counters = Counters(
            time_s=START_S + second,
            interface="eth1",
            ranks=(rank,),
            machine_cpu_s=500.0 + 1.25 * second,
        )
        pressure = gauge.look(counters)
    assert pressure.others_cores.now == pytest.approx(0.5)
    assert pressure.others_cores.before == pytest.approx(0.5)
