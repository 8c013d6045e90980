"""One real agent without torch for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.agent.live import LiveAgent, free_port


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Iterator[LiveAgent]:
    """One for all requests that leave it as it was: starting takes a second."""
    worker = 100 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    address = f"127.{worker}.1.1"
    state = tmp_path_factory.mktemp("node1")
    made = LiveAgent("node1", address, free_port(address), state)
    try:
        yield made.start("--link-capacity", "lo=8gbit")
    finally:
        made.end()


@pytest.fixture(autouse=True)
def nothing_promised(request):
    """Whatever a test leased is given back."""
    yield
    if "agent" in request.fixturenames:
        agent = request.getfixturevalue("agent")
        if agent.process.poll() is None:
            for one in agent.info().leases:
                agent.send("DELETE", f"/v1/leases/{one.job_id}/{one.attempt}", {})
