"""``stop`` and ``kill``: the processes that survive a job."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import JobNotFoundError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import Leftover
from tests.wording import says


def test_stop_and_kill_say_that_nothing_is_left(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    job._ends_as = "canceled"
    outcome = do("stop", "j-7f3a", "--reason", "enough", "--grace", "1")
    assert job.calls == [("stop", ("enough", 1.0))]
    assert "no process is left" in text(outcome.renderable)
    assert as_json(outcome) == {
        "job_id": job.id, "state": "canceled", "leftovers": [], "unknown_nodes": [],
    }  # fmt: skip
    assert "already" in text(do("kill", job.id).renderable)


def test_what_would_not_die_is_named_and_is_a_failure(do, cluster, text):
    (job,) = cluster._jobs.values()
    job.become("canceled")
    view = job.view()
    left = Leftover(pid=4711, command="python train.py", status="disk sleep")
    parts = (msgspec.structs.replace(view.parts[0], leftovers=(left,)), *view.parts[1:])
    view = msgspec.structs.replace(view, parts=parts)
    job.view = lambda: view
    outcome = do("stop", job.id)
    assert outcome.exit_code == 1
    assert "wopr: pid 4711 could not be killed (disk sleep)" in text(outcome.renderable)


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
    assert "may still run" in text(outcome.renderable)
