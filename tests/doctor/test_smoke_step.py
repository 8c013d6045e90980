"""The check of a job that was started to see whether it works."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.doctor.check import Case, Finding
from jupyter_mntrain.doctor.workload.smoke_step import SmokeStep
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.trial import (
    JobTrial,
    TriedNode,
    TriedRank,
    read_line,
    written_line,
)
from tests.doctor.healthy import healthy
from tests.wording import says

RANKS = (TriedRank(0, 0.5, 1_000_000_000), TriedRank(1, 0.8, 2_000_000_000))
HERE, THERE = (node.name for node in healthy().nodes[:2])


def judged(trial: JobTrial) -> list[Finding]:
    case: Case = msgspec.structs.replace(healthy(), trial=trial)
    return list(SmokeStep().findings(case))


def test_what_a_step_took_stands_beside_the_plan():
    nodes = (TriedNode(HERE, (0, 1), (1e9, 1.9e9)),)
    (one,) = judged(JobTrial(is_recipe=True, nodes=nodes, ranks=RANKS))
    assert (one.node, one.level) == (HERE, "passed")
    assert one.said == "2 ranks, 0.8 s, 2.0 GB, 1.9 planned"


def test_of_a_script_it_says_that_no_step_was_made():
    trial = JobTrial(is_recipe=False, nodes=(TriedNode(HERE, (0,)),), ranks=(TriedRank(0, 0.012),))
    (one,) = judged(trial)
    assert one.said == "1 rank met in 12 ms; no step"


def test_a_node_that_ended_because_another_failed_is_not_judged():
    problem = Problem(kind=Kind.NO_MODULE, cause="No module named 'shiny'", fix="install it")
    nodes = (TriedNode(HERE, (0,)), TriedNode(THERE, (1,), (1e9,), problem))
    (one,) = judged(JobTrial(is_recipe=True, nodes=nodes))
    assert (one.node, one.level) == (THERE, "stops")
    assert one.problem is not None
    assert one.problem.cause == problem.cause


def test_a_lack_of_memory_is_told_with_the_plan():
    problem = Problem(kind=Kind.OUT_OF_MEMORY, cause="no more", fix="use less")
    (one,) = judged(
        JobTrial(is_recipe=True, nodes=(TriedNode(HERE, (0, 1), (2e9, 3.5e9), problem),))
    )
    assert one.problem is not None
    assert says("5.5 GB", one.problem.cause)


def test_what_is_not_told_is_unknown_with_what_to_do():
    untold = Problem(kind=Kind.JOBS_RUNNING, cause="a job runs there", fix="wait for it")
    found = judged(
        JobTrial(
            is_recipe=True, nodes=(TriedNode(HERE, (0,)), TriedNode(THERE, (1,))), untold=untold
        )
    )
    assert [(one.node, one.level) for one in found] == [(HERE, "unknown"), (THERE, "unknown")]
    assert {one.problem for one in found} == {untold}


def test_a_line_is_read_back_and_a_damaged_one_is_none():
    assert read_line(f"[rank0]: {written_line(RANKS[1])}") == RANKS[1]
    assert read_line("mntrain doctor: {") is None
    assert read_line("step 1/1") is None
