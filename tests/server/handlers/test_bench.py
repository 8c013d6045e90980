"""The benchmark's route: it begins one, says how far it is, and refuses beside a job."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.server.benches import BenchState
from tests.cluster.conftest import wait_for
from tests.server.conftest import Served, refused
from tests.wording import says

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


def state(served: Served) -> BenchState:
    answer = served.server.ask("GET", "/bench")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=BenchState)


def test_one_that_cannot_be_made_says_why(served: Served) -> None:
    answer = served.server.ask("POST", "/bench", {"nodes": ["nobody"]})
    assert answer.status_code == 200, answer.text
    wait_for(lambda: not state(served).is_running)
    problem = state(served).problem
    assert problem is not None
    assert problem.kind is Kind.BAD_SPEC
    # Where none runs there is nothing to cancel.
    answer = served.server.ask("DELETE", "/bench")
    assert msgspec.json.decode(answer.content, type=BenchState).problem == problem


def test_beside_a_job_none_begins(served: Served) -> None:
    job_id = served.add_job(state="running")
    problem = refused(served.server.ask("POST", "/bench", {}), 409, Kind.JOBS_RUNNING)
    assert says("would slow it down", problem["cause"])
    assert problem["fix"]
    for agent in served.agents:  # the next tests' nodes are free
        served.do(agent.finish, job_id)
