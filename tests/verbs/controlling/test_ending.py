"""``stop`` and ``kill``: the processes that survive a job."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import Leftover
from tests.wording import says


def test_stop_and_kill_say_that_nothing_is_left(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    job._ends_as = "canceled"
    outcome = do("stop", "j-7f3a", "--reason", "enough", "--grace", "1")
    assert job.calls == [("stop", ("enough", 1.0))]
    assert "no process is left" in text(outcome.renderable)
    assert as_json(outcome) == {
        "job_id": job.id, "state": "canceled", "leftovers": [], "waits_for": [],
        "unknown_nodes": [],
    }  # fmt: skip
    assert "already" in text(do("kill", job.id).renderable)


def test_what_would_not_die_is_named_and_is_a_failure(do, cluster, text):
    (job,) = cluster._jobs.values()
    job.become("canceled")
    view = job.view()
    left = Leftover(
        pid=4711, command="python train.py", status="D (disk sleep)", waits_in="nfs_wait"
    )
    parts = (msgspec.structs.replace(view.parts[0], leftovers=(left,)), *view.parts[1:])
    view = msgspec.structs.replace(view, parts=parts)
    job.view = lambda: view
    outcome = do("stop", job.id)
    assert outcome.exit_code == 1
    said = text(outcome.renderable)
    assert "wopr: pid 4711 python (uninterruptible, nfs_wait) could not be killed" in said


def test_a_stop_that_is_not_over_says_what_it_waits_for(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    job.become("stopping")
    view = job.view()
    held = Leftover(pid=12, command="/usr/bin/python -m torch", status="T (stopped)")
    parts = (msgspec.structs.replace(view.parts[0], waits_for=(held,)), *view.parts[1:])
    view = msgspec.structs.replace(view, parts=parts)
    job.view = lambda: view
    outcome = do("stop", job.id)
    said = text(outcome.renderable)
    assert "wopr: stopping, waiting for pid 12 python (stopped by a signal)" in said
    assert "does not answer" not in said
    assert as_json(outcome)["waits_for"] == [{"node": "wopr", **msgspec.to_builtins(held)}]


def test_one_rank_can_be_killed_and_its_pid_is_said(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    outcome = do("kill", job.id, "--rank", "1")
    assert job.calls == [("kill_rank", 1)]
    view = job.view()
    node, pid = next((p.node, r.pid) for p in view.parts for r in p.ranks if r.rank == 1)
    assert as_json(outcome) == {"job_id": job.id, "rank": 1, "node": node, "pid": pid}
    assert f"rank 1 on {node}" in text(outcome.renderable)
    with pytest.raises(SpecError):
        do("kill", job.id, "--rank", "99")


@pytest.mark.parametrize("verb", ["stop", "save", "kill"])
def test_where_nothing_runs_the_fix_is_the_list_of_jobs(do, cluster, verb):
    (job,) = cluster._jobs.values()
    job.become("succeeded")
    with pytest.raises(JobNotFoundError) as caught:
        do(verb)
    assert caught.value.kind is Kind.NO_SUCH_JOB
    assert says("no job is running", caught.value.cause)
    assert says("mntrain jobs", caught.value.fix)


def test_a_silent_node_is_never_reported_as_stopped(do, cluster, text):
    (job,) = cluster._jobs.values()
    job._ends_as = "unknown"
    outcome = do("stop", job.id)
    assert outcome.exit_code == 1
    # Its nodes are up: that they do not answer would be untrue.
    assert "wopr, muthur have no record of it yet" in text(outcome.renderable)
    (part, other) = job.view().parts
    gone = msgspec.structs.replace(part, node="elsewhere")
    view = msgspec.structs.replace(job.view(), state="running", parts=(gone, other))
    job.view = lambda: view
    job.become = lambda _: None
    said = text(do("stop", job.id).renderable)
    assert "elsewhere does not answer, so the job may still run there" in said


def become(job, *saved, **attempt):
    """The next look at the job: what its first node has saved, and of which attempt."""
    view = job.view()
    parts = (msgspec.structs.replace(view.parts[0], saved=saved), *view.parts[1:])
    attempt = msgspec.structs.replace(view.attempt, **attempt)
    job.change_view(msgspec.structs.replace(view, parts=parts, attempt=attempt))


def test_a_save_is_named_by_the_checkpoint_that_was_asked_for(do, cluster, as_json):
    (job,) = cluster._jobs.values()
    due, asked = SavedStep(400, 1.0, is_scheduled=True), SavedStep(403, 2.0)
    job.on_save = lambda: become(job, due, asked)
    outcome = do("save", job.id)
    assert ("save", False) in job.calls
    assert as_json(outcome)["saved_step"] == 403
    assert outcome.exit_code == 0


def test_a_save_that_nobody_asked_for_answers_none(do, cluster):
    (job,) = cluster._jobs.values()
    job.on_save = lambda: become(job, SavedStep(400, 1.0, is_scheduled=True))
    assert do("save", job.id).exit_code == 1


def test_a_save_that_fails_says_why_with_its_fix(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    cause = "step 403 could not be saved: 1 MB are free, and 9 MB are needed: /kept"
    full = Problem(Kind.DISK_FULL, cause, fix="free some space", node="wopr", step=403)
    earlier = SavedStep(400, 1.0, problem=full)
    become(job, earlier)
    job.on_save = lambda: become(job, earlier, SavedStep(403, 2.0, problem=full))
    outcome = do("save", job.id)
    assert outcome.exit_code == 1
    told = as_json(outcome)
    assert (told["saved_step"], told["problem"]["kind"]) == (None, "disk-full")
    said = text(outcome.renderable)
    assert cause in said
    assert says("Fix: free some space.", said)
    # One that failed before it was asked is none of its business.
    job.on_save = lambda: None
    assert as_json(do("save", job.id))["problem"] is None


def test_a_save_of_an_attempt_that_has_ended_is_not_waited_for_in_the_next(do, cluster, text):
    (job,) = cluster._jobs.values()
    job.on_save = lambda: become(job, SavedStep(403, 2.0), number=2)
    outcome = do("save", job.id)
    assert outcome.exit_code == 1
    assert says("attempt 1 ended before it had saved: try again", text(outcome.renderable))
