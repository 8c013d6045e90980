"""Agents of an allocation, found and admitted by their files: real agents, without multicast."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.cluster.discovery.slot_discovery import SlotAddresses
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.sources.slots import AllocationFile, read_slots, write_allocation
from tests.agent.forking.python import forking_python
from tests.cluster.discovery.slot_agent import SlotAgent
from tests.waiting import until

pytestmark = pytest.mark.slow

DOWN = Problem(kind=Kind.NODES_TAKEN, cause="its machine is down", fix="wait")

WAITS = """
import time
time.sleep(600)
"""


@pytest.fixture
def allocation(tmp_path: Path) -> Path:
    made = tmp_path / "allocation"
    made.mkdir()
    return made


@pytest.fixture
def driver() -> Iterator[Cluster]:
    with Cluster("given", discovery=StaticDiscovery()) as made:
        yield made


@pytest.fixture
def start(
    allocation: Path, driver: Cluster, tmp_path: Path, loopback_addresses: Iterator[str]
) -> Iterator[Callable[[str], SlotAgent]]:
    """Start an agent in a slot, as a scheduler does, with the one token of the allocation."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(driver.membership.invite(uses=9, expires_in_s=86_400))
    agents: list[SlotAgent] = []

    def begin(slot: str) -> SlotAgent:
        address = next(loopback_addresses)
        agent = SlotAgent.start(allocation / slot, token, address, forking_python())
        agents.append(agent)
        return agent

    yield begin
    for agent in agents:
        agent.end()


def up(driver: Cluster) -> dict[str, str]:
    """Addresses of the nodes that are up, by name."""
    return {node.name: node.address for node in driver.nodes() if node.liveness == "up"}


def test_a_driver_admits_the_agents_of_an_allocation_by_their_files(
    driver: Cluster, allocation: Path, start: Callable[[str], SlotAgent]
) -> None:
    driver.discovery.follow(allocation)
    for slot in ("slurm-0", "slurm-1"):
        start(slot)
    until(lambda: set(up(driver)) == {"slurm-0", "slurm-1"}, "both nodes to be up")
    assert all(not one.joining for one in read_slots(allocation))


def test_a_slot_on_another_machine_is_the_same_node_or_a_new_one_of_its_name(
    driver: Cluster, allocation: Path, start: Callable[[str], SlotAgent], tmp_path: Path
) -> None:
    driver.discovery.follow(allocation)
    first = start("slurm-0")
    until(lambda: "slurm-0" in up(driver), "the node to be up")
    before = up(driver)["slurm-0"]
    (known,) = driver.nodes()
    first.kill()
    (tmp_path / "token").unlink()  # removed once all have joined
    again = start("slurm-0")
    until(lambda: up(driver).get("slurm-0", before) != before, "the node to be up elsewhere")
    (back,) = driver.nodes()
    assert back.info is not None
    assert known.info is not None
    assert back.info.node_id == known.info.node_id
    again.kill()
    shutil.rmtree(allocation / "slurm-0")  # it was on the machine that is gone
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text(driver.membership.invite())
    start("slurm-0")

    def is_new() -> bool:
        infos = [node.info for node in driver.nodes() if node.liveness == "up" and node.info]
        return bool(infos) and infos[0].node_id != known.info.node_id

    until(is_new, "another node of that name to be up")
    assert [node.name for node in driver.nodes()] == ["slurm-0"], "nothing is left of the first"
    spec = JobSpec(
        entry=("true.py",),
        files={"true.py": ""},
        participants=(Participant(node="slurm-0", nproc=1),),
    )
    assert driver.launch(spec).wait().state == "succeeded", "the name means one node"


def test_a_slot_that_was_taken_ends_the_attempt(
    driver: Cluster, allocation: Path, start: Callable[[str], SlotAgent]
) -> None:
    driver.discovery.follow(allocation)
    agents = [start(slot) for slot in ("slurm-0", "slurm-1")]
    until(lambda: len(up(driver)) == 2, "both nodes to be up")
    job = launched(driver)
    agents[1].kill_all()
    until(lambda: job.view().parts[1].state == "unknown", "the second node to be silent")
    assert job.state == "running", "a node that is silent may be back in a moment"
    write_allocation(allocation, AllocationFile(gone={"slurm-1": DOWN}))
    until(lambda: job.state == "failed", "the attempt to end")
    problem = job.view().problem
    assert problem is not None
    assert (problem.kind, problem.node) == (Kind.NODES_TAKEN, "slurm-1")
    assert problem.cause == DOWN.cause


def launched(driver: Cluster) -> Job:
    spec = JobSpec(
        entry=("waits.py",),
        files={"waits.py": WAITS},
        participants=tuple(Participant(node=f"slurm-{one}", nproc=1) for one in range(2)),
    )
    job = driver.launch(spec)
    until(lambda: job.state == "running", "the job to run")
    return job


def test_agents_that_a_source_knows_are_admitted_and_watched_where_it_says(
    driver: Cluster, allocation: Path, start: Callable[[str], SlotAgent]
) -> None:
    def address() -> str:
        (told,) = read_slots(allocation)
        return told.addresses[0]

    def node_id() -> NodeId:
        (node,) = driver.nodes()
        assert node.info is not None
        return node.info.node_id

    class Told(SlotAddresses):
        async def ask(self) -> dict[str, str]:
            return {one.slot: one.addresses[0] for one in read_slots(allocation)}

        async def close(self) -> None:
            pass

    first = start("pod-0")
    until(lambda: read_slots(allocation), "it waits to join")
    before = address()
    driver.discovery.reach(Told("pods"))
    until(lambda: up(driver) == {"pod-0": before}, "the node to be up")
    known = node_id()
    first.kill()
    start("pod-0")
    until(lambda: address() != before, "it is back elsewhere")
    until(lambda: up(driver) == {"pod-0": address()}, "the node to be up there")
    assert node_id() == known, "its state was kept"
