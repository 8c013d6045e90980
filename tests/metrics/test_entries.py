"""Page entries of jobs and nodes."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.metrics.entry_builder import job_entry, listed_entry, node_entries
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.listing import duration_s, job_step
from jupyter_mntrain.model.lifecycle.loss_line import LossLine
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import Earlier, JobView
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.model.records.node import NodeView
from tests.standin.jobs import ONE_AND_TWO, history, place, record, summarize, view

THREE = (*ONE_AND_TWO, place("node3", 2, 3))


def test_a_job_entry_holds_neither_environment_nor_files() -> None:
    job: JobView = view(
        "running", "running", spec={"environment": {"TOKEN": "hush"}, "files": {"a.py": "hush"}}
    )
    assert "hush" not in repr(job_entry(job, submitted_by="ada"))


def test_a_rank_that_loads_says_how_far_it_is() -> None:
    job = view("starting", "starting", places=ONE_AND_TWO)
    told = RankProgress(time_s=1.0, rank=Rank(1), what="loading the model", done=2, total=8)
    entry = job_entry(job, history=history(job, {"node2": [told]}))
    assert entry.progress == (told,)


def test_nodes_that_never_answered_have_keys_too() -> None:
    views = [
        NodeView(address="10.0.0.1:8765", found_by="typed", liveness="connecting"),
        NodeView(address="10.0.0.2:8765", found_by="typed", liveness="lost"),
    ]
    assert [entry.key for entry in node_entries(views)] == ["10.0.0.1:8765", "10.0.0.2:8765"]


def test_warnings_reach_page_and_tables() -> None:
    warning = Problem(kind=Kind.LOSS_NAN, cause="the loss became NaN", node="node1", rank=Rank(0))
    job = msgspec.structs.replace(view("succeeded", "succeeded"), warnings=(warning,))
    assert job_entry(job).warnings == (warning,)
    assert summarize(history(job, {}), now_s=1000.0).warnings == (warning,)


def test_a_listed_job_has_the_line_of_the_first_node_that_tells_a_loss() -> None:
    def line(loss: float) -> LossLine:
        return LossLine(begin=1, width=1, lows=(loss,), highs=(loss,), first=loss, last=loss)

    silent, *telling = (record(number, "succeeded", places=THREE) for number in range(3))
    records = [
        msgspec.structs.replace(one, loss_line=line(loss))
        for one, loss in zip(reversed(telling), (9.0, 2.0), strict=True)
    ]
    assert listed_entry(roll_up([*records, silent])).loss_line == line(2.0)
    assert listed_entry(roll_up([silent])).loss_line is None


def test_page_and_list_know_the_same_of_an_ended_job_that_no_driver_has_read() -> None:
    ended = record(0, "succeeded", places=THREE[:1], started_s=500.0, ended_s=540.0)
    ranks = tuple(msgspec.structs.replace(one, step=1200) for one in ended.part.ranks)
    restarted = msgspec.structs.replace(
        ended.attempt, number=2, submitted_s=499.0, earlier=Earlier(begun_s=400.0, world_size=1)
    )
    line = LossLine(
        begin=1, width=1, lows=(2.0,), highs=(2.0,), first=2.0, last=2.0, total_steps=1500
    )
    job = roll_up(
        [
            msgspec.structs.replace(
                ended,
                part=msgspec.structs.replace(ended.part, ranks=ranks),
                attempt=restarted,
                loss_line=line,
            )
        ]
    )
    told = job_entry(job).numbers
    assert told == listed_entry(job).numbers
    assert (told.step, told.total_steps, told.elapsed_s) == (1200, 1500, 140.0)
    assert (told.step, told.elapsed_s) == (job_step(job), duration_s(job, now_s=9e9))
