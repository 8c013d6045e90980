"""Arguments that no type checker has seen: one sentence names what can be passed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from tests.standin.agent import FakeAgent
from tests.wording import says

Call = Callable[[Any, Any], object]

CALLS: dict[str, tuple[Call, str]] = {
    "an order": (
        lambda cluster, job: cluster.jobs(sort="nope"),
        "use one of started, duration, name, state",
    ),
    "an id in place of a job": (
        lambda cluster, job: job.compare(job.id),
        "use jobs, as Cluster.job(id) returns them",
    ),
    "an action": (
        lambda cluster, job: cluster.checkpoints(job.id).change(3, "nope"),
        "use one of delete, pin, unpin",
    ),
    "a negative time": (lambda cluster, job: job.wait_for_history(-1), "use seconds, 0 or more"),
    "no time": (lambda cluster, job: job.wait(math.nan), "use seconds, 0 or more"),
    "a time as text": (lambda cluster, job: job.catch_up("5"), "use seconds, 0 or more"),
    "an axis": (lambda cluster, job: job.zoom(1, 5, by="nope"), "use one of step, time"),
    "a range": (lambda cluster, job: job.zoom(5, 1), "use one that is not before begin, 5"),
    "no points": (lambda cluster, job: job.zoom(1, 5, points=0), "use 1 or more"),
    "lines": (lambda cluster, job: job.logs(tail=-1), "use a number of lines, 0 or more"),
    "grace": (lambda cluster, job: job.stop(grace_s=-1), "use 0 to 3600 seconds"),
    "no past": (
        lambda cluster, job: cluster.usage.history("node1", last_s=-5),
        "use seconds, more than 0",
    ),
    "points": (
        lambda cluster, job: cluster.usage.history("node1", points=1),
        "use 2 to ",
    ),
    "a port": (lambda cluster, job: cluster.port_status("node1", -1), "use 1 to 65535"),
    "one member": (lambda cluster, job: cluster.participants("node1"), "use a list: ['node1']"),
    "one setting": (
        lambda cluster, job: cluster.resume(job.id, settings="train.steps=3"),
        "use a list: ['train.steps=3']",
    ),
    "no spec": (lambda cluster, job: cluster.launch("recipe.toml"), "use a JobSpec"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_cannot_be_used_is_named_with_what_can(
    name: str, near: Cluster, job: Job, two: list[FakeAgent]
) -> None:
    call, use = CALLS[name]
    with pytest.raises(SpecError) as caught:
        call(near, job)
    assert says(use, caught.value.fix)
    assert len(str(caught.value).splitlines()) == 1
    assert job.state == "running"
    assert len(two[0].jobs) == 1


def test_a_long_text_is_not_repeated_by_the_error(near: Cluster) -> None:
    with pytest.raises(JobNotFoundError) as caught:
        near.job("x" * 5000)
    assert len(str(caught.value)) < 300
