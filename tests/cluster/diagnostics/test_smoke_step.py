"""When the doctor starts a job to see whether it works, and what it then starts."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.diagnostics.smoke_step import START_SCRIPT, tried_spec
from jupyter_mntrain.doctor.check import DoctorReport, Finding
from jupyter_mntrain.model.environment import (
    FIRST_STEP_VARIABLE,
    MAIL_VARIABLE,
    WEBHOOK_VARIABLE,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Origin, Participant
from jupyter_mntrain.plan.spec_check import check_spec
from tests.cluster.conftest import wait_for
from tests.cluster.near import spec
from tests.standin.agent import FakeAgent
from tests.standin.faults import Refuse

RECIPE = JobSpec(
    entry=("-m", TRAINER, "recipe.toml", "--set", "train.steps=7"),
    participants=(Participant(node="node1"), Participant(node="node2")),
    files={"recipe.toml": ""},
    python="/env",
    environment={"NCCL_DEBUG": "WARN", WEBHOOK_VARIABLE: "https://here", MAIL_VARIABLE: "a@b.c"},
    max_restarts=3,
    origin=Origin(),
    chosen={"model.dtype": "bfloat16"},
)


def tried(cluster: Cluster, job: JobSpec | None = None) -> list[Finding]:
    report = cluster.trial.run(job or spec(), cluster.doctor.examine(["node1", "node2"]))
    return [one for one in report.findings if one.check == "deep-step"]


def states(agents: list[FakeAgent]) -> set[str]:
    return {record.part.state for agent in agents for record in agent.jobs.values()}


def test_a_recipe_is_tried_as_it_is_but_for_what_would_stay():
    made = tried_spec(RECIPE)
    check_spec(made)
    assert (made.entry, made.files) == (RECIPE.entry, RECIPE.files)
    assert (made.python, made.chosen) == (RECIPE.python, RECIPE.chosen)
    assert made.environment == {"NCCL_DEBUG": "WARN", FIRST_STEP_VARIABLE: "1"}
    assert (made.max_restarts, made.origin, made.on_nan) == (0, None, "stop")


def test_of_a_script_only_a_start_is_tried():
    script = msgspec.structs.replace(RECIPE, entry=("train.py", "--fast"), project="0" * 64)
    made = tried_spec(script, ["numpy", "torch"])
    check_spec(made)
    assert made.entry == (START_SCRIPT, "numpy", "torch")
    assert set(made.files) == {START_SCRIPT}
    assert made.project is None
    assert FIRST_STEP_VARIABLE not in made.environment


def test_nothing_is_started_where_something_stops_a_launch(near: Cluster, two: list[FakeAgent]):
    stops = Finding("disk-space", "node1", "stops", "0 GB free")
    report = DoctorReport(("node1", "node2"), (stops,), {}, time_s=0.0, took_s=0.1)
    found = near.trial.run(spec(), report).findings
    assert [(one.check, one.level) for one in found] == [
        ("disk-space", "stops"),
        ("deep-step", "unknown"),
        ("deep-step", "unknown"),
    ]
    assert not any(agent.jobs for agent in two)


def test_a_job_that_runs_there_is_not_disturbed(near: Cluster, two: list[FakeAgent]):
    running = near.launch(spec())
    found = tried(near)
    assert {one.level for one in found} == {"unknown"}
    assert all(one.problem and one.problem.kind is Kind.JOBS_RUNNING for one in found)
    assert all(running.id in str(one.problem) for one in found)
    assert all(list(agent.jobs) == [running.id] for agent in two)


def test_a_busy_gpu_is_not_a_fault_and_another_refusal_is(near: Cluster, two: list[FakeAgent]):
    two[1].faults["lease"] += [Refuse(cause="GPU 0 is leased", kind=Kind.GPU_TAKEN, status=409)]
    assert {one.level for one in tried(near)} == {"unknown"}
    two[1].faults["lease"] += [Refuse(cause="no such interface", kind=Kind.REFUSED, status=409)]
    assert [(one.node, one.level) for one in tried(near)] == [("node2", "stops")]


def test_one_that_does_not_end_in_time_is_ended_and_deleted(
    near: Cluster, two: list[FakeAgent], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("jupyter_mntrain.cluster.diagnostics.smoke_step.LIMIT_S", 0.1)
    found = tried(near)
    assert [(one.level, one.problem and one.problem.kind) for one in found] == [
        ("unknown", Kind.NODE)
    ] * 2
    wait_for(lambda: states(two) == {"canceled"})


def test_ctrl_c_ends_and_deletes_it(
    near: Cluster, two: list[FakeAgent], monkeypatch: pytest.MonkeyPatch
):
    from jupyter_mntrain.cluster.job import Job

    real, calls = Job.wait, []

    def wait(self: Job, *words, **settings):
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(self, *words, **settings)

    monkeypatch.setattr(Job, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        tried(near)
    wait_for(lambda: states(two) == {"canceled"})
