"""Fake agents that run until the test ends, on the test's own loop or on one in a thread; and two
real ones.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster, Job, StaticDiscovery
from jupyter_mntrain.cluster.agents import distrust
from jupyter_mntrain.cluster.view import node_search
from tests.agent.forking.python import forking_python
from tests.agent.live import LiveAgent, two_agents
from tests.cluster.near import Open, spec
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.train.test_command import write_text
from tests.waiting import PATIENCE_S, pauses


class FakeClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def python() -> str:
    """With which the agents run jobs."""
    return forking_python()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[list[LiveAgent]]:
    """Two real ones, for all tests of a file."""
    # Addresses of this run's own: what runs alongside it, here or elsewhere, is told apart.
    network = f"127.{150 + os.getpid() % 100}.{secrets.randbelow(250)}"
    with two_agents(network, tmp_path_factory.mktemp("state"), "test", python=python) as made:
        yield made


@pytest.fixture
def cluster(agents: list[LiveAgent]) -> Iterator[Cluster]:
    """A driver that has found both."""
    with Cluster(agents[0].cluster, addresses=[agent.where for agent in agents]) as made:
        wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
        yield made


@pytest.fixture
def no_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a connection is only broken off no alert follows, and each would be waited for."""
    monkeypatch.setattr(distrust, "ALERT_S", 0.01)


@pytest.fixture
async def agent_here(
    anyio_backend: str, loopback_addresses: Iterator[str]
) -> AsyncIterator[Callable[..., Awaitable[FakeAgent]]]:
    """Makes agents on the test's own event loop."""
    made: list[FakeAgent] = []

    async def make(name: str = "node1", **fields: Any) -> FakeAgent:
        agent = FakeAgent(name, **({"address": next(loopback_addresses)} | fields))
        await agent.start()
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.die()


@pytest.fixture
def elsewhere(loopback_addresses: Iterator[str]) -> Iterator[Elsewhere]:
    agents = Elsewhere(loopback_addresses)
    yield agents
    agents.close()


def wait_for(is_true: Callable[[], Any]) -> Any:
    """The first true value, waited for."""
    deadline, pause = time.monotonic() + PATIENCE_S, pauses()
    while not (value := is_true()):
        assert time.monotonic() < deadline, "never came true"
        time.sleep(next(pause))
    return value


@pytest.fixture
def open_cluster() -> Iterator[Open]:
    opened: list[Cluster] = []

    def open_it(*agents: FakeAgent, **fields: Any) -> Cluster:
        addresses = [agent.where for agent in agents]
        made = Cluster(**({"addresses": addresses, "discovery": StaticDiscovery()} | fields))
        opened.append(made)
        return made

    yield open_it
    for made in opened:
        made.close()


@pytest.fixture
def two(elsewhere: Elsewhere) -> list[FakeAgent]:
    return [elsewhere.agent("node1"), elsewhere.agent("node2")]


@pytest.fixture
def near(open_cluster: Open, two: list[FakeAgent]) -> Cluster:
    """A driver that has found both stand-ins."""
    made = open_cluster(*two)
    wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
    # As in a notebook that has been open for long: discovery has had its time.
    made._driver.grace.begun -= node_search.CONNECT_S
    return made


@pytest.fixture
def job(near: Cluster) -> Job:
    """Of both stand-ins."""
    return near.launch(spec())


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the built-in trainer learns."""
    return write_text(tmp_path_factory.mktemp("data") / "text")
