"""Records of an allocation whose agents are gone: read by a driver as those of any job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.jobs.record_file import read_record
from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.model.sources.slots import AllocationFile, write_allocation
from tests.cluster.discovery.slot_agent import SlotAgent
from tests.waiting import until

pytestmark = pytest.mark.slow

OVER = Problem(kind=Kind.TIME_LIMIT, cause="its time limit is reached", fix="ask for more time")
STEPS = """
import time
from jupyter_mntrain import Recorder
print("hello from", __file__, flush=True)
with Recorder() as recorder:
    for _ in range(100_000):
        time.sleep(0.05)
        recorder.step(tokens=10, loss=1.0)
"""


@pytest.fixture
def allocation(tmp_path: Path) -> Path:
    made = tmp_path / "allocation"
    made.mkdir()
    return made


@pytest.fixture
def left(
    allocation: Path, tmp_path: Path, loopback_addresses: Iterator[str]
) -> Iterator[tuple[Job, list[SlotAgent]]]:
    """A job that runs in two slots, and its agents."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    agents: list[SlotAgent] = []
    with Cluster("given", discovery=StaticDiscovery()) as driver:
        token.write_text(driver.membership.invite(uses=2))
        slots = ("slurm-0", "slurm-1")
        agents += [
            SlotAgent.start(allocation / slot, token, next(loopback_addresses)) for slot in slots
        ]
        driver.discovery.follow(allocation)
        until(lambda: len([n for n in driver.nodes() if n.liveness == "up"]) == 2, "both nodes")
        spec = JobSpec(
            entry=("steps.py",),
            files={"steps.py": STEPS},
            participants=tuple(Participant(node=slot, nproc=1) for slot in slots),
        )
        job = driver.launch(spec)
        until(lambda: all(part.ranks[0].step for part in job.view().parts), "steps on both")
        yield job, agents
    for agent in agents:
        agent.end()


def test_what_ended_with_its_allocation_is_read_from_the_shared_disk(
    left: tuple[Job, list[SlotAgent]], allocation: Path
) -> None:
    """One agent wrote its end. The other lost its power, and only the source knows."""
    job, (first, second) = left
    second.kill_all()
    write_allocation(allocation, AllocationFile(ending=OVER))
    first.end()
    told = mntrain(allocation, "status", job.id)
    assert told["state"] == "failed"
    assert told["problem"]["kind"] == Kind.TIME_LIMIT
    for slot in ("slurm-0", "slurm-1"):
        part = read_record(allocation / slot / "jobs" / job.id).part
        assert part.state == "failed", "no record stays running"
        assert part.problem is not None
        assert part.problem.cause == OVER.cause
    lines = mntrain(allocation, "logs", job.id)
    printed = {line["node"] for line in lines if "hello from" in line["text"]}
    assert printed == {"slurm-0", "slurm-1"}
    with Cluster("given", discovery=StaticDiscovery()) as later:
        later.discovery.follow(allocation)
        read = later.job(job.id)
        read.watch()
        until(lambda: read.history().is_complete, "the journals")
        assert all(rank.step for rank in read.summary().ranks)
        with pytest.raises(MntrainError) as refused:
            later.launch(job.spec())
        assert refused.value.kind is Kind.TIME_LIMIT, "nothing can start there"


def test_a_slot_that_comes_back_speaks_for_itself(
    left: tuple[Job, list[SlotAgent]],
    allocation: Path,
    tmp_path: Path,
    loopback_addresses: Iterator[str],
) -> None:
    _, (first, _) = left
    with Cluster("given", discovery=StaticDiscovery()) as driver:
        first.end()
        driver.discovery.follow(allocation)
        until(lambda: known(driver, "slurm-0").problem is not None, "its directory to be read")
        address = next(loopback_addresses)
        again = SlotAgent.start(allocation / "slurm-0", tmp_path / "token", address)
        until(lambda: known(driver, "slurm-0").address.startswith(f"{address}:"), "its agent")
        until(lambda: known(driver, "slurm-0").problem is None, "it to be as before")
        again.end()


def known(driver: Cluster, name: str) -> NodeView:
    return next(node for node in driver.nodes() if node.name == name)


def mntrain(allocation: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "jupyter_mntrain.cli", "--json", "--cluster", "given"]
    command += ["--allocation", str(allocation), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)
