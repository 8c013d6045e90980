"""A recorded step of a job, as a page asks for it."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import wait_for
from tests.server.conftest import Served, refused
from tests.standin.traces import traces_of, walked

# It starts a Jupyter server of its own.
pytestmark = pytest.mark.slow


def test_a_recorded_step_is_shown_once_all_ranks_have_told_it(served: Served) -> None:
    job_id = served.add_job()
    assert served.server.get(f"/jobs/{job_id}/trace")["not_recorded"]["cause"]
    for rank, trace in traces_of(walked(), number=3).items():
        served.do(served.agents[rank].write, job_id, trace)
    wait_for(lambda: "recorded" in served.server.get(f"/jobs/{job_id}/trace"))
    found = served.server.get(f"/jobs/{job_id}/trace")
    recorded = found["recorded"]
    assert (recorded["spans"]["step"], recorded["names"]) == (3, ["r0 node1", "r1 node2"])
    kinds = [[span["kind"] for span in rank] for rank in recorded["spans"]["ranks"]]
    assert [one.count("F") for one in kinds] == [4, 4]
    assert found["not_predicted"]["cause"]
    refused(served.server.ask("GET", "/jobs/j-00000000/trace"), 404, "no-such-job")
