"""Job events: what happened and when, as data."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.metrics.events import MOST_TRAFFIC, TRAFFIC_S, OtherTraffic, events_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import ChangedValue, Episode, JobView, RunningChange
from jupyter_mntrain.model.records.metrics import RankStart
from tests.standin.jobs import history, summarize, view


def told(job: JobView) -> list[tuple[str, float, int | None]]:
    return [(one.kind, one.time_s, one.step) for one in events_of(job, ())]


def with_parts(job: JobView, *changes: dict[str, Any]) -> JobView:
    parts = [
        msgspec.structs.replace(part, **change)
        for part, change in zip(job.parts, changes, strict=True)
    ]
    return msgspec.structs.replace(job, parts=tuple(parts))


def test_a_start_is_of_the_first_part_and_says_whether_it_went_on() -> None:
    first = with_parts(view("running", "running"), {"started_s": 12.0}, {"started_s": 11.0})
    assert told(first) == [("started", 11.0, None)]
    second = with_parts(
        view("running", "running", number=2), {"started_s": 12.0}, {"started_s": None}
    )
    assert told(second) == [("restarted", 12.0, None)]
    resumed = with_parts(second, {"resumed_step": 40}, {"resumed_step": None})
    assert told(resumed) == [("resumed", 12.0, 40)]


def test_a_checkpoint_is_saved_once_although_every_node_tells_it() -> None:
    both = with_parts(
        view("running", "running"),
        {"saved": (SavedStep(step=5, time_s=50.0), SavedStep(step=10, time_s=100.0))},
        {"saved": (SavedStep(step=5, time_s=49.0),)},
    )
    assert told(both) == [("saved", 49.0, 5), ("saved", 100.0, 10)]


def test_a_save_that_failed_is_told_once_also_after_the_next_one() -> None:
    problem = Problem(Kind.DISK_FULL, "full", node="node2", step=5, time_s=50.0)
    failed = SavedStep(step=5, time_s=50.0, problem=problem)
    saved = {"saved": (failed, SavedStep(step=10, time_s=100.0))}
    job = view("running", "running")
    over = with_parts(job, saved, saved)
    assert told(over) == [("warning", 50.0, 5), ("saved", 100.0, 10)]
    now = msgspec.structs.replace(with_parts(job, {"saved": (failed,)}, {}), warnings=(problem,))
    assert [one.problem for one in events_of(now, ())] == [problem]


def test_settings_that_were_changed_are_told_once_with_who_and_what() -> None:
    value = ChangedValue("train.steps", "100", "200")
    change = RunningChange("a", 7, 70.0, by="ada@lab", values=(value,))
    problem = Problem(Kind.BAD_RECIPE, "late")
    refused = RunningChange("b", 8, 80.0, refused=problem)
    both = with_parts(
        view("running", "running"), {"changes": (change, refused)}, {"changes": (change,)}
    )
    assert told(both) == [("changed", 70.0, 7)]
    (event,) = events_of(both, ())
    assert "train.steps 100 → 200" in event.label
    assert "ada@lab" in event.label


def test_steps_that_somebody_changed_are_those_to_make() -> None:
    late = RunningChange("b", 8, 80.0, refused=Problem(Kind.BAD_RECIPE, "too late"))
    begun = RankStart(
        time_s=0.0, rank=Rank(0), local_rank=0, world_size=2, pid=1, host="x", total_steps=20
    )
    more = RunningChange("a", 7, 70.0, total_steps=50)
    for changes, total in (((), 20), ((more, late), 50)):
        job = view("running", "running", changes=changes)
        assert summarize(history(job, {"node1": [begun]}), now_s=90.0).total_steps == total


def test_slowness_stalls_and_failures_carry_their_problem() -> None:
    slow = Problem(Kind.LINK_SLOW, "c", node="node1", time_s=30.0)
    warning = Problem(Kind.LOSS_CONSTANT, "w", time_s=20.0)
    stall = Problem(Kind.NO_PROGRESS, "s", time_s=60.0)
    job = msgspec.structs.replace(
        view("running", "running"),
        episodes=(Episode(problem=slow, label="l", end_s=40.0),),
        warnings=(warning, slow),
        stall=stall,
    )
    found = events_of(job, ())
    assert [(one.kind, one.time_s, one.end_s) for one in found] == [
        ("warning", 20.0, None),
        ("link-slow", 30.0, 40.0),
        ("stalled", 60.0, None),
    ]
    assert [one.problem for one in found] == [warning, slow, stall]


def test_five_faults_are_five_entries() -> None:
    """Two that are over, of which one stalled it; a warning that is over; two that go on."""
    told_at = {
        10.0: (Kind.SLOW_RANK, 15.0, False),
        20.0: (Kind.STOPPED, 30.0, True),
        40.0: (Kind.LOSS_DIVERGED, 44.0, False),
        50.0: (Kind.LINK_DOWN, None, True),
    }
    episodes = tuple(
        Episode(problem=Problem(kind, "c", time_s=at), label="l", end_s=end_s, is_stall=is_stall)
        for at, (kind, end_s, is_stall) in told_at.items()
    )
    job = msgspec.structs.replace(
        view("running", "running"),
        episodes=episodes,
        stall=Problem(Kind.LINK_DOWN, "c", time_s=50.0),
        warnings=(Problem(Kind.ZERO_GRADIENTS, "w", time_s=60.0),),
    )
    assert [(one.kind, one.time_s, one.end_s) for one in events_of(job, ())] == [
        ("slow", 10.0, 15.0),
        ("stalled", 20.0, 30.0),
        ("warning", 40.0, 44.0),
        ("stalled", 50.0, None),
        ("warning", 60.0, None),
    ]


def link(shares: list[float], begin_s: float = 0.0) -> dict[str, list[float]]:
    """A row per second of a link of 1000 bytes per second; the job itself sends 300."""
    return {
        "time_s": [begin_s + second for second in range(len(shares))],
        "sent": [300.0 + 1000.0 * share for share in shares],
        "own_sent": [300.0] * len(shares),
        "received": [300.0] * len(shares),
        "own_received": [300.0] * len(shares),
    }


def test_other_traffic_has_a_beginning_an_end_and_its_share() -> None:
    traffic = OtherTraffic("node1")
    long = int(TRAFFIC_S) + 3
    traffic.see(link([0.0] * 4 + [0.5] * long), 1000.0)
    (still,) = traffic.events
    assert (still.kind, still.node, still.time_s, still.end_s) == ("traffic", "node1", 4.0, None)
    assert still.share == 0.5
    traffic.see(link([0.0] * long, 4.0 + long), 1000.0)
    (over,) = traffic.events
    assert (over.time_s, over.end_s) == (4.0, 4.0 + long - 1)


def test_bursts_and_links_of_unknown_capacity_tell_nothing() -> None:
    traffic = OtherTraffic("node1")
    traffic.see(link(([0.9] + [0.0] * 9) * 5), 1000.0)
    traffic.see(link([0.05] * 60, 100.0), 1000.0)
    traffic.see(link([0.9] * 60, 200.0), None)
    assert traffic.events == []


def test_only_the_newest_stretches_are_kept() -> None:
    traffic = OtherTraffic("node1")
    for number in range(MOST_TRAFFIC + 5):
        traffic.see(link([0.9] * 9 + [0.0] * 9, 18.0 * number), 1000.0)
    assert len(traffic.events) == MOST_TRAFFIC
    assert traffic.events[0].time_s == 5 * 18.0
