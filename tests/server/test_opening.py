"""Opening of the cluster: when it opens and closes, and its error for a bad name."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.cluster.conftest import wait_for
from tests.server.conftest import (
    CLUSTER,
    refused,
)
from tests.server.live_server import TOKEN, LiveServer
from tests.standin.elsewhere import Elsewhere

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


def test_the_cluster_is_opened_by_the_first_who_asks(
    new_server: Callable[..., LiveServer], elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node1", cluster=CLUSTER)
    server = new_server(agent.where)
    base = server.url("").removesuffix("/mntrain/v1")
    assert httpx.get(f"{base}/api/status", headers={"Authorization": f"token {TOKEN}"}).json()
    assert server.ask("GET", "/nowhere").status_code == 404
    assert httpx.get(server.url("/status")).status_code == 403
    assert agent.requests == []
    server.get("/status")
    wait_for(lambda: agent.count("stream"))


def test_the_end_of_the_server_ends_the_watching(
    new_server: Callable[..., LiveServer], elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node1", cluster=CLUSTER)
    server = new_server(agent.where)
    server.get("/status")
    wait_for(lambda: agent._listeners)
    assert server.end() == 0, server.log
    wait_for(lambda: not agent._listeners)
    assert "Traceback" not in server.log


def test_a_wrong_cluster_name_is_said_and_asked_again(
    new_server: Callable[..., LiveServer],
) -> None:
    server = new_server("", cluster="no name at all")
    for _ in range(2):
        refused(server.ask("GET", "/status"), 400, "bad-spec")
