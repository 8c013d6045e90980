"""Lost requests and replies on the way to real agents: nothing happens twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_mntrain.cluster import Cluster, Job, StaticDiscovery
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.records.job import JobSpec
from tests.agent.forking.python import is_torchrun
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.cluster.losing_proxy import LosingProxy, Lost, losing
from tests.cluster.test_real_agents import processes_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SCRIPT = "import time; print('runs', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def proxies(agents: list[LiveAgent]) -> Iterator[list[LosingProxy]]:
    with losing(agents) as made:
        yield made


@pytest.fixture
def cluster(proxies: list[LosingProxy]) -> Iterator[Cluster]:
    """A driver that has each node at its losing address alone."""
    for one in proxies:
        one.asked.clear()
    addresses = [one.where for one in proxies]
    with Cluster("test", addresses=addresses, discovery=StaticDiscovery()) as made:
        wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
        yield made
    for one in proxies:
        assert not any(one.lose.values()), "all that was to be lost has been"


def launch(cluster: Cluster) -> Job:
    participants = cluster.participants(["node1:1", "node2:1"])
    files = {"a.py": SCRIPT}
    return cluster.launch(JobSpec(entry=("a.py",), files=files, participants=participants))


def torchruns(job_id: str) -> int:
    return sum(is_torchrun(one.cmdline()) for one in processes_of(job_id))


def nothing_is_left(agents: list[LiveAgent], known: set[str]) -> None:
    wait_for(lambda: not any(agent.info().leases for agent in agents))
    for agent in agents:
        for record in agent.records():
            if record.job_id not in known:
                wait_for(lambda job=record.job_id: not processes_of(job))


@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("route", ["lease", "start"])
def test_what_is_lost_is_asked_again_and_done_once(
    cluster: Cluster, proxies: list[LosingProxy], agents: list[LiveAgent], route: str, lost: Lost
) -> None:
    for one in proxies:
        one.lose[route] = [lost] * 2
    job = launch(cluster)
    try:
        # Once more where an answer is late: what it did is done once all the same.
        assert all(one.asked[route] >= 3 for one in proxies), "the lost ones are asked again"
        wait_for(lambda: job.state == "running")
        wait_for(lambda: torchruns(job.id) == 2)
        records = [agent.record(job.id) for agent in agents]
        assert records[0].attempt == records[1].attempt
        for one in proxies:
            one.lose["stop"] = [lost]
    finally:
        job.kill()
    assert job.wait(PATIENCE_S).state == "canceled"
    wait_for(lambda: not processes_of(job.id))
    wait_for(lambda: not any(agent.info().leases for agent in agents))


@pytest.mark.parametrize("route", ["lease", "start"])
def test_replies_that_never_come_are_undone(
    cluster: Cluster, proxies: list[LosingProxy], agents: list[LiveAgent], route: str
) -> None:
    """node2 does what is asked of it, and no reply of it arrives."""
    known = {record.job_id for agent in agents for record in agent.records()}
    proxies[1].lose[route] = ["reply"] * 4
    undo = "release" if route == "lease" else "stop"
    with pytest.raises(NodeError) as caught:
        launch(cluster)
    assert caught.value.node == "node2"
    assert proxies[1].asked[undo] >= 1
    nothing_is_left(agents, known)
