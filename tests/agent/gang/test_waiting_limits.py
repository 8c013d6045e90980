"""Limits of waiting, with real agents: the job ends, says why, and nothing of it waits anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from tests.agent.live import LiveAgent, launch, start_request, two_agents
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("limits")
    with two_agents("127.93.8", state, "test") as both:
        yield both


def test_a_queued_job_ends_at_its_limit_on_all_of_its_nodes(agents: list[LiveAgent]) -> None:
    job_id = new_job_id()
    request = start_request(agents, "pass", job_id, 0, 0, python="/gone/python", queue_limit_s=1.0)
    for agent in reversed(agents):
        assert agent.send("PUT", f"/v1/jobs/{job_id}", request).status_code == 200
    until(lambda: not any(agent.record(job_id).is_live for agent in agents), "its end")
    view = roll_up([agent.record(job_id) for agent in agents])
    assert view.state == "failed"
    assert view.problem is not None
    assert view.problem.kind is Kind.WAITED_TOO_LONG
    assert not any(agent.info().leases for agent in agents)


def test_a_job_gives_up_on_a_node_that_stays_lost(agents: list[LiveAgent]) -> None:
    job_id = launch(agents, "import os; os.abort()", max_restarts=3, lost_limit_s=1.0)
    until(lambda: agents[0].record(job_id).restart is not None, "an attempt to be planned")
    agents[1].kill()
    until(lambda: agents[0].record(job_id).is_over, "the head to give up")
    view = roll_up([agents[0].record(job_id)])
    assert [one.kind for one in view.warnings] == [Kind.WAITED_TOO_LONG]
    assert agents[0].record(job_id).restart is None
    assert not agents[0].info().leases
