"""Queue: jobs that wait for GPUs get all or nothing, and none waits forever."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobState,
)
from tests.agent.live import LiveAgent, free_port, start_request, two_agents
from tests.waiting import until


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("queue")
    with two_agents("127.95.0", state, "test") as both:
        yield both


SHORT = "import time; time.sleep(1)"
_submitted = itertools.count(1)


def leave(agents: list[LiveAgent], script: str, port: int, priority: int = 0) -> JobId:
    """As a driver does it, which then goes away."""
    job_id = new_job_id()
    request = start_request(agents, script, job_id, 0, 0, priority=priority)
    request = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, port=port)
    )
    attempt = msgspec.structs.replace(request.attempt, submitted_s=float(next(_submitted)))
    request = msgspec.structs.replace(request, attempt=attempt)
    for agent in reversed(agents):
        for _ in range(2):  # twice is once
            answer = agent.send("PUT", f"/v1/jobs/{job_id}", request)
            assert answer.status_code == 200, answer.text
    return job_id


def state(agents: list[LiveAgent], job_id: JobId) -> JobState:
    return roll_up([agent.record(job_id) for agent in agents]).state


@pytest.mark.slow
def test_three_jobs_that_want_the_same_run_one_after_the_other(agents: list[LiveAgent]) -> None:
    port = free_port(agents[0].address)
    jobs = [leave(agents, SHORT, port) for _ in range(3)]
    seen = set()

    def are_over() -> bool:
        states = [state(agents, job_id) for job_id in jobs]
        seen.update(states)
        waits = [agents[0].record(job_id).restart for job_id in jobs]
        seen.update(
            "a reason"
            for one in waits
            if one and one.waits_for and one.waits_for.kind is Kind.PORT_TAKEN
        )
        return all(one in TERMINAL for one in states)

    until(are_over, "all three to end")
    assert [state(agents, job_id) for job_id in jobs] == ["succeeded"] * 3
    # One after another: on the head each began when the one before had ended.
    parts = [agents[0].record(job_id).part for job_id in jobs]
    times = sorted((part.started_s or 0.0, part.ended_s or 0.0) for part in parts)
    assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(times))
    assert {"pending", "a reason"} <= seen
    assert not any(agent.info().leases for agent in agents)


@pytest.mark.slow
def test_a_job_that_waits_survives_its_agents_and_can_be_stopped(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    port = free_port(agents[0].address)
    first = leave(agents, "import time; time.sleep(600)", port)
    until(lambda: state(agents, first) == "running", "the first to run")
    second, third = (leave(agents, SHORT, port) for _ in range(2))
    for agent in agents:
        agent.kill()
        agent.start()
    assert [state(agents, job_id) for job_id in (second, third)] == ["pending", "pending"]
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{third}/stop", {"reason": "not needed"})
    assert state(agents, third) == "canceled"
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{first}/stop", {"reason": "enough", "grace_s": 0})
    until(lambda: state(agents, second) == "succeeded", "the second one's turn")
    assert state(agents, third) == "canceled"


def test_a_queued_job_that_a_node_has_lost_ends_instead_of_waiting_forever(
    agents: list[LiveAgent],
) -> None:
    """Only a driver can deposit it there again."""
    head, other = agents
    request = start_request(agents, SHORT, new_job_id(), 0, 0)
    assert head.send("PUT", f"/v1/jobs/{request.job_id}", request).status_code == 200
    record = head.ended(request.job_id)
    assert record.part.state == "failed"
    assert record.part.problem is not None
    assert (record.part.problem.kind, record.part.problem.node) == (Kind.NO_RECORD, other.name)
    assert record.is_over
    assert not head.info().leases
