"""A state directory that is lost while the agent runs: said once, and over when it is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.agent.membership.state_directory import StateDirectory, load_node_id
from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import new_job_id, new_node_id
from tests.agent.jobs.books import read_only
from tests.agent.live import LiveAgent
from tests.waiting import until
from tests.wording import reads, says

pytestmark = pytest.mark.agents


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state" / "jobs").mkdir(parents=True)
    return tmp_path / "state"


def test_every_loss_has_a_cause_and_none_outlasts_it(state: Path, tmp_path: Path) -> None:
    directory = StateDirectory(state, load_node_id(state))

    def cause() -> str:
        found = directory.problem()
        return found.cause if found is not None else ""

    assert cause() == ""
    with read_only(state):
        assert reads("read-only|not writable", cause())
    assert cause() == ""
    state.rename(tmp_path / "away")
    assert says("is gone", cause())
    (state / "jobs").mkdir(parents=True)
    assert says("is gone", cause()), "an empty one in its place is none"
    (state / "node_id").write_text(new_node_id())
    assert says("another node's", cause())


def test_an_agent_says_once_that_its_directory_is_gone_and_refuses_leases_until_it_is_back(
    new_agent: Callable[[], LiveAgent],
) -> None:
    agent = new_agent()
    request = LeaseRequest(job_id=new_job_id(), attempt=1, ranks=1, interface="lo")
    away = agent.state.with_name("away")
    agent.state.rename(away)
    until(lambda: agent.info().problem, "the problem")
    problem = agent.info().problem
    assert problem is not None
    assert problem.kind is Kind.NO_STATE
    assert str(agent.state) in problem.cause
    refused = agent.send("POST", "/v1/leases", request)
    assert (refused.status_code, refused.json()["kind"]) == (409, "no-state")
    seen = agent.info().started_s
    with agent.stream() as answer:  # a few heartbeats later
        for line, _ in zip(answer.iter_lines(), range(4), strict=False):
            assert line
    away.rename(agent.state)
    until(lambda: agent.info().problem is None, "its recovery")
    assert agent.log().count(problem.cause) == 1
    assert "Traceback" not in agent.log()
    assert agent.info().started_s == seen
    assert agent.send("POST", "/v1/leases", request).status_code == 200
