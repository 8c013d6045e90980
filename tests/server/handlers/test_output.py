"""Output of a job for a notebook: data, picture and text of one moment."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import msgspec
import pytest

from jupyter_mntrain.metrics.page_entries import JobBundle
from jupyter_mntrain.model.ids import JobId
from tests.cluster.conftest import wait_for
from tests.server.conftest import SECRET, STEPS, Served, served_authority
from tests.server.live_server import LiveServer

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


def test_a_notebooks_output_is_of_one_moment(served: Served) -> None:
    job_id = served.add_job(state="succeeded")
    output = served.server.get(f"/jobs/{job_id}/output")
    bundle = msgspec.convert(output["job"], JobBundle)
    assert bundle.job.state == "succeeded"
    assert bundle.job.numbers.step == STEPS
    assert bundle.series.job.step[-1] == STEPS
    assert abs(bundle.saved_s - time.time()) < 60
    assert time.strftime("%Y-%m-%d", time.localtime(bundle.saved_s)) in output["text"]
    assert base64.b64decode(output["picture"]).startswith(b"\x89PNG")
    assert output["width_px"] > 0
    assert SECRET not in str(output)


def test_a_saved_running_job_says_nothing_of_its_end(served: Served, job_id: JobId) -> None:
    output = wait_for(lambda: served.server.get(f"/jobs/{job_id}/output"))
    bundle = msgspec.convert(output["job"], JobBundle)
    assert bundle.job.state == "running"
    assert bundle.job.numbers.remaining_s is None
    assert bundle.series.summary.remaining_s is None


def test_a_server_that_has_just_started_knows_the_end_of_a_job(
    served: Served, new_server: Callable[..., LiveServer]
) -> None:
    job_id = served.add_job(state="failed")
    agents = " ".join(agent.where for agent in served.agents)
    server = new_server(agents, authority=served_authority())
    output = wait_for(
        lambda: (one := server.ask("GET", f"/jobs/{job_id}/output")).is_success and one.json()
    )
    assert output["job"]["job"]["state"] == "failed"
    assert output["job"]["job"]["numbers"]["step"] == STEPS
