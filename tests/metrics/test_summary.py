"""Job summary: every number is computed by hand next to it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.metrics.summary import JobSummary, Window
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Earlier
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    RankEvaluation,
    RankProgress,
    RankStart,
    Sample,
)
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.show.tables.job import status_view
from tests.standin.jobs import (
    ONE_AND_TWO,
    history,
    measured_links,
    place,
    step,
    summarize,
    taken,
    view,
)
from tests.standin.plans import plan_of
from tests.wording import says

NOW_S = 1000.0


def start(rank: int, **fields: Any) -> RankStart:
    basis: dict[str, Any] = {
        "time_s": 0.0,
        "rank": Rank(rank),
        "local_rank": 0,
        "world_size": 2,
        "pid": 1,
        "host": "node",
        "stages": (rank,),
        "layers": (2 * rank, 2 * rank + 1),
        "peak_flops_per_s": 1000.0,
        "total_steps": 20,
        "device": "RTX",
    }
    return RankStart(**(basis | fields))


def pipeline(
    rank: int, *, compute_s: float, flops: float | None = 100.0, **more: Any
) -> list[Sample]:
    """Two slow warm-up steps, then seven of one second and one that stumbled."""
    durations = [30.0, 10.0, *[1.0] * 7, 5.0]
    time_s = 0.0
    samples: list[Sample] = [start(rank, **more)]
    for number, step_s in enumerate(durations, 1):
        time_s += step_s
        samples.append(
            step(
                rank,
                number,
                time_s=time_s,
                step_s=step_s,
                tokens=512,
                loss=10.0 - number,
                compute_s=compute_s * step_s,
                flops=flops,
                sent_bytes={1 - rank: 1000 * (rank + 1)},
                received_bytes={1 - rank: 1000 * (2 - rank)},
                memory_bytes=100 - number,
                reserved_bytes=200 + number,
            )
        )
    return samples


def summary(
    node1: list[Sample] | None = None, node2: list[Sample] | None = None, **fields: Any
) -> JobSummary:
    return summarize(
        history(
            view("running", "running", **fields),
            {
                "node1": pipeline(0, compute_s=0.8) if node1 is None else node1,
                "node2": pipeline(1, compute_s=0.4) if node2 is None else node2,
            },
        ),
        now_s=NOW_S,
    )


def test_the_job() -> None:
    got = summary(started_s=900.0)
    assert (got.job_id, got.state, got.step, got.total_steps) == ("j-00000001", "running", 10, 20)
    # Eight steps after the warm-up, in 12 s.
    assert got.tokens_per_s == pytest.approx(8 * 512 / 12), "both see the same tokens: no sum"
    assert got.window == Window(
        12.0, 8, 8 * 512, got.tokens_per_s, {"steps": 7.0, "long steps": 5.0}
    )
    assert (got.step_s, got.step_spread.low, got.elapsed_s) == (1.0, 1.0, 100.0)
    assert got.mfu == pytest.approx(8 * 200.0 / 12 / 2000.0)
    assert got.bubble == pytest.approx(0.4), "mean of 0.2 and 0.6"
    assert (got.first_loss, got.loss) == (9.0, 0.0)


def test_what_was_predicted_is_told_in_the_tokens_that_the_job_counts() -> None:
    planned = plan_of(step_s=2.0)
    running = view("running", "running")
    attempt = msgspec.structs.replace(running.attempt, plan=planned)
    running = msgspec.structs.replace(running, attempt=attempt)
    none = summarize(history(running, {}), now_s=NOW_S)
    assert none.predicted_tokens_per_s == planned.tokens_per_s
    samples = {"node1": pipeline(0, compute_s=0.8), "node2": pipeline(1, compute_s=0.4)}
    got = summarize(history(running, samples), now_s=NOW_S)
    assert got.predicted_tokens_per_s == 512 / 2.0, "without the padding that the plan counts"
    assert got.predicted_step_s == 2.0


def test_the_last_evaluation_of_whoever_tells_any() -> None:
    told = [
        RankEvaluation(time_s=1.0, rank=Rank(1), step=at, loss=loss)
        for at, loss in ((0, 5.0), (10, 3.5))
    ]
    assert summary(node2=[*pipeline(1, compute_s=0.4), *told]).evaluation_loss == 3.5
    assert summary().evaluation_loss is None


def test_its_ranks() -> None:
    fast, slow = summary().ranks[1], summary().ranks[0]
    assert (slow.rank, slow.node, slow.stages, slow.layers) == (0, "node1", (0,), (0, 1))
    assert (slow.step, slow.device, slow.memory_bytes, slow.reserved_bytes) == (10, "RTX", 99, 210)
    assert slow.tokens_per_s == fast.tokens_per_s == pytest.approx(8 * 512 / 12)
    assert slow.pace_tokens_per_s == pytest.approx(8 * 512 / (0.8 * 12))
    assert fast.pace_tokens_per_s == pytest.approx(8 * 512 / (0.4 * 12))
    assert (slow.compute, fast.compute) == (pytest.approx(0.8), pytest.approx(0.4))
    assert slow.mfu == pytest.approx(8 * 100.0 / 12 / 1000.0)


def test_replicas_of_a_stage_add_up_and_so_do_ranks_of_a_script_without_stages() -> None:
    for stages in ((0,), ()):
        got = summary(
            pipeline(0, compute_s=0.8, stages=stages), pipeline(1, compute_s=0.8, stages=stages)
        )
        assert got.tokens_per_s == pytest.approx(8 * 1024 / 12)


def test_an_unknown_peak_gives_no_number_for_the_rank_and_none_for_the_job() -> None:
    got = summary(node2=pipeline(1, compute_s=0.4, peak_flops_per_s=None))
    assert got.ranks[0].mfu is not None
    assert got.ranks[1].mfu is None
    assert got.mfu is None
    assert summary(node2=pipeline(1, compute_s=0.4, flops=None)).mfu is None


def test_mixed_devices_are_measured_by_the_sum_of_their_own_peaks() -> None:
    got = summary(node2=pipeline(1, compute_s=0.4, peak_flops_per_s=3000.0))
    assert got.mfu == pytest.approx(8 * 200.0 / 12 / 4000.0)


def test_a_rank_that_has_written_nothing_leaves_the_whole_unknown() -> None:
    got = summary(node2=[])
    of_all = ("tokens_per_s", "mfu", "bubble")
    assert {got.missing[name] for name in of_all} == {"rank 1 reports nothing"}
    assert got.ranks[1].step is None
    assert [getattr(got, name) for name in of_all] == [None] * 3
    assert (got.step, got.step_s) == (10, 1.0), "it is not waited for"
    assert got.ranks[0].tokens_per_s is None, "rank 1 may be a replica, with tokens of its own"
    assert says("not every rank reports tokens", got.ranks[0].missing["tokens_per_s"])
    assert got.first_loss == 9.0


def test_an_agent_that_is_away_halves_no_throughput_and_is_named() -> None:
    """The ranks go on; their journal cannot be read."""
    replica = pipeline(0, compute_s=0.8, stages=())
    away = summarize(history(view("running"), {"node1": replica}), now_s=NOW_S)
    assert away.ranks[1].state == "unknown"
    assert (away.tokens_per_s, away.ranks[0].pace_tokens_per_s) == (None, None)
    assert says("node2 does not answer", away.missing["tokens_per_s"])


def test_a_rank_that_is_read_late_has_its_part_in_every_row() -> None:
    own = [pipeline(rank, compute_s=0.8, stages=()) for rank in (0, 1)]
    job = view("running", "running")
    builder = taken(history(job, {"node1": own[0]}))
    before = builder.whole()
    assert before.job.tokens_per_s == before.ranks[0].tokens_per_s == ()
    builder.extend(history(job, {"node1": own[0], "node2": own[1]}), NOW_S)
    after = builder.since(before.seq)
    assert after.since == 0, "all rows are sent again"
    assert len(after.job.step) == 10
    assert after.job.tokens_per_s[-2:] == (1024.0, 204.8)
    assert builder.summary.tokens_per_s == pytest.approx(8 * 1024 / 12)


def test_warm_up_alone_gives_no_rates() -> None:
    got = summary(pipeline(0, compute_s=0.8)[:3], pipeline(1, compute_s=0.8)[:3])
    assert got.step == 2
    assert got.tokens_per_s is None
    assert got.mfu is None
    assert got.ranks[0].tokens_per_s is None


def test_nothing_at_all_is_a_summary_too() -> None:
    got = summary([], [])
    assert (got.step, got.tokens_per_s, got.elapsed_s, got.first_loss) == (None, None, None, None)
    assert [rank.rank for rank in got.ranks] == [0, 1]


def test_a_finished_job_took_as_long_as_its_longest_part_by_that_nodes_clock() -> None:
    got = summarize(
        history(view("succeeded", "succeeded", started_s=50.0, ended_s=80.0), {}), now_s=NOW_S
    )
    assert got.elapsed_s == 30.0


def test_a_job_took_as_long_as_all_of_its_attempts() -> None:
    """The first one began 42 s before this one, which took 30 s."""
    job = view("succeeded", "succeeded", started_s=50.0, ended_s=80.0, number=2)
    earlier = Earlier(world_size=2, begun_s=8.0)
    attempt = msgspec.structs.replace(job.attempt, earlier=earlier)
    got = summarize(history(msgspec.structs.replace(job, attempt=attempt), {}), now_s=NOW_S)
    assert got.elapsed_s == 72.0


def test_the_cause_is_passed_on() -> None:
    problem = Problem(
        kind=Kind.OUT_OF_MEMORY, cause="out of memory", time_s=1.0, node="node1", rank=Rank(0)
    )
    got = summarize(history(view("failed", "canceled", problem=problem), {}), now_s=NOW_S)
    assert (got.problem, got.state) == (problem, "failed")


def links(
    capacity: Capacity | None = None,
    *,
    sent: tuple[int, ...] = (500,) * 60,
    sender: str = "node1",
) -> list[Sample]:
    return [
        LinkSample(
            time_s=float(second),
            interface="eth1",
            interval_s=1.0,
            sent_bytes=size,
            received_bytes=2 * size,
            links=measured_links(sender, ("node1", "node2"), capacity) if capacity else (),
        )
        for second, size in enumerate(sent, 1)
    ]


def test_a_job_without_steps_has_the_newest_rate_of_its_links() -> None:
    """A session, or a script that reports nothing."""
    got = summary(node1=links(sent=(0,) * 50 + (600,) * 5), node2=[])
    assert [link.bytes_per_s for link in got.links if link.node == "node1"] == [600.0, 1200.0]
    assert not [link for link in summary(node1=[], node2=[]).links if link.bytes_per_s]


def test_a_link_is_averaged_over_the_recent_steps() -> None:
    """Steps end at 30, 40, 41 … 47 and 52 s: those after the warm-up take 12 s."""
    sent = (999,) * 40 + (500,) * 12 + (777,) * 8
    measured = Capacity(bytes_per_s=1000.0, source="measured")
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links(measured, sent=sent)])
    out, into = (link for link in got.links if link.node == "node1")
    assert (out.direction, out.bytes_per_s, out.utilization) == ("sent", 500.0, 0.5)
    assert (into.direction, into.bytes_per_s, into.utilization) == ("received", 1000.0, None)
    assert into.missing == "the capacity is not measured", "what is sent says nothing of the rest"
    assert (out.basis, out.interface, out.capacity) == ("interface", "eth1", measured)


def test_bursts_between_idle_seconds_count_as_what_they_are_on_average() -> None:
    sent = (0,) * 40 + (3000, 0, 0) * 4 + (0,) * 8
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links(sent=sent)])
    assert got.links[0].bytes_per_s == pytest.approx(1000.0), "four bursts in 12 seconds"


def test_each_direction_is_divided_by_its_own_capacity() -> None:
    there = Capacity(bytes_per_s=1000.0, source="measured", time_s=5.0, condition="alone")
    back = Capacity(bytes_per_s=4000.0, source="measured", time_s=6.0, condition="beside a job")
    got = summary(
        node1=[*pipeline(0, compute_s=0.8), *links(there)],
        node2=[*pipeline(1, compute_s=0.4), *links(back, sender="node2")],
    )
    told = {(one.node, one.direction): (one.capacity, one.utilization) for one in got.links}
    assert told == {
        ("node1", "sent"): (there, 0.5),
        ("node1", "received"): (back, 0.25),
        ("node2", "sent"): (back, 0.125),
        ("node2", "received"): (there, 1.0),
    }


def test_a_link_that_carries_more_than_was_measured_is_full_and_says_so() -> None:
    known = Capacity(bytes_per_s=400.0, source="measured", time_s=5.0, payload_share=0.5)
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links(known)])
    out = got.links[0]
    assert (out.bytes_per_s, out.utilization) == (500.0, 1.0)
    assert out.capacity == Capacity(
        bytes_per_s=500.0, source="measured", time_s=5.0, payload_share=0.5, is_exceeded=True
    )


def test_a_burst_says_nothing_of_what_a_link_carries() -> None:
    known = Capacity(bytes_per_s=600.0, source="measured")
    one_second = (100,) * 40 + (1500,) + (100,) * 19
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links(known, sent=one_second)])
    assert got.links[0].capacity == known
    three_seconds = (100,) * 40 + (1500,) * 3 + (100,) * 17
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links(known, sent=three_seconds)])
    assert got.links[0].capacity.is_exceeded


def test_a_link_that_was_never_measured_has_no_utilization() -> None:
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links()])
    one = got.links[0]
    assert (one.capacity, one.utilization) == (None, None)
    assert one.missing == "the capacity is not measured"


def test_what_the_user_gave_is() -> None:
    got = summary(
        node1=[*pipeline(0, compute_s=0.8), *links()], spec={"link_capacity_bytes_per_s": 2000.0}
    )
    assert got.links[0].utilization == 0.25
    assert got.links[0].capacity == Capacity(bytes_per_s=2000.0, source="given")


def test_on_loopback_the_payload_of_the_ranks_counts_for_nodes_share_the_counters() -> None:
    places = [
        place("node1", 0, 0, address="127.0.0.2", interface="lo"),
        place("node2", 1, 1, address="127.0.0.3", interface="lo"),
    ]
    got = summary(node1=[*pipeline(0, compute_s=0.8), *links()], places=places)
    rate = pytest.approx(8 * 1000 / 12, rel=1e-3)
    twice = pytest.approx(8 * 2000 / 12, rel=1e-3)
    assert [(link.node, link.direction, link.bytes_per_s) for link in got.links] == [
        ("node1", "sent", rate),
        ("node1", "received", twice),
        ("node2", "sent", twice),
        ("node2", "received", rate),
    ]
    assert {link.basis for link in got.links} == {"ranks"}


def test_what_ranks_of_one_node_send_each_other_is_not_on_the_link() -> None:
    places = [
        place("node1", 0, 0, address="127.0.0.2", interface="lo"),
        place("node2", 1, 1, nproc=2, address="127.0.0.3", interface="lo"),
    ]
    samples = {
        "node2": [
            step(rank, n, sent_bytes={0: 10, 1: 500, 2: 500})
            for n in range(1, 6)
            for rank in (1, 2)
        ]
    }
    got = summarize(history(view("running", "running", places=places), samples), now_s=NOW_S)
    by_link = {(link.node, link.direction): link.bytes_per_s for link in got.links}
    assert by_link["node2", "sent"] == 20.0
    assert by_link["node1", "sent"] is None


def test_a_single_node_has_no_link() -> None:
    alone = view("running", places=[place("node1", 0, 0, nproc=2)])
    assert summarize(history(alone, {}), now_s=NOW_S).links == ()


def test_ranks_of_the_one_and_two_layout_know_their_nodes() -> None:
    got = summarize(history(view("running", "running", places=ONE_AND_TWO), {}), now_s=NOW_S)
    assert [(rank.rank, rank.node) for rank in got.ranks] == [
        (0, "node1"),
        (1, "node2"),
        (2, "node2"),
    ]


def test_what_a_rank_does_before_its_steps_is_passed_on() -> None:
    loading = RankProgress(time_s=1.0, rank=Rank(1), what="loading the model", done=2, total=5)
    before = summary(node2=[loading])
    assert before.ranks[1].progress == loading
    assert (before.ranks[1].step, before.tokens_per_s, before.bubble) == (None, None, None)
    assert summary(node2=[loading, *pipeline(1, compute_s=0.4)]).ranks[1].progress is None


@pytest.mark.parametrize(("ahead_s", "word"), [(3600.0, "ahead of"), (-3600.0, "behind"), (1, "")])
def test_a_job_runs_by_its_own_clock_whatever_that_of_the_machine_that_shows_it_says(
    ahead_s: float, word: str
) -> None:
    told = history(view("running", "running", started_s=900.0), {})
    told = replace(told, clock_ahead_s=-ahead_s)
    got = summarize(told, now_s=NOW_S + ahead_s)
    assert got.elapsed_s == 100.0
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_view(got, now_s=NOW_S + ahead_s))
    text = console.export_text()
    assert ("this machine's clock" in text) == bool(word)
    assert says(f"{word} the job's" if word else "elapsed", text)
