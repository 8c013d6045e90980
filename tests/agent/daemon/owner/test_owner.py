"""The owner's word on running agents: whoever asks, however they ask, the node itself refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.node import Availability
from tests.agent.gang.test_gpu_contention import CARDS, ENDS, HOLDS, leave
from tests.agent.live import LiveAgent, two_agents
from tests.waiting import until

pytestmark = pytest.mark.agents


def say(agent: LiveAgent, *words: str) -> str:
    """On the machine itself, as its owner types it."""
    command = [sys.executable, "-m", "jupyter_mntrain.agent", *words]
    environment = {**os.environ, "PYTHONPATH": str(CARDS)}
    done = subprocess.run(
        [*command, "--state-dir", str(agent.state)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_what_the_agent_can_use_is_offered(new_agent: Callable[..., LiveAgent]) -> None:
    agent = new_agent(environment={"PYTHONPATH": str(CARDS), "CUDA_VISIBLE_DEVICES": "1"})
    say(agent, "offer", "--gpus", "1")
    with pytest.raises(AssertionError, match="CUDA_VISIBLE_DEVICES is '1'"):
        say(agent, "offer", "--gpus", "0,1")
    until(lambda: agent.info().availability.gpus == (1,))


def refused(agent: LiveAgent, *gpus: int, shares: bool = False) -> str:
    """What a driver is told that asks for a lease without a look at the node's record."""
    request = LeaseRequest(
        job_id=new_job_id(), attempt=1, ranks=1, gpus=gpus, interface="lo", shares_gpus=shares
    )
    answer = agent.send("POST", "/v1/leases", request)
    if answer.status_code == 200:
        agent.send("DELETE", f"/v1/leases/{request.job_id}/1", {})
        return ""
    assert (answer.status_code, answer.json()["node"]) == (409, agent.name)
    return str(answer.json()["kind"])


def test_a_gpu_that_computes_for_others_is_leased_to_who_named_it(
    new_agent: Callable[..., LiveAgent],
) -> None:
    agent = new_agent(environment={"PYTHONPATH": str(CARDS), "CARD_PIDS": str(os.getpid())})
    assert refused(agent, 0) == "gpu-taken"
    assert refused(agent, 0, shares=True) == ""
    say(agent, "offer", "--gpus", "1")
    assert refused(agent, 0, shares=True) == "not-offered", "to name it is no right to it"


def test_a_node_leases_what_is_lent_and_says_so_at_once_and_after_a_restart(
    new_agent: Callable[..., LiveAgent],
) -> None:
    environment = {"PYTHONPATH": str(CARDS)}
    agent = new_agent(environment=environment)
    assert refused(agent, 1) == ""
    say(agent, "offer", "--gpus", "0", "--memory", "20GiB")
    assert refused(agent, 1) == "not-offered", "at once: not only after the next heartbeat"
    assert refused(agent, 0) == ""
    say(agent, "drain", "--reason", "exam")
    assert refused(agent, 0) == refused(agent) == "drained"
    until(lambda: agent.info().problem, "what others are told")
    agent.end()
    agent.start(environment=environment)
    assert refused(agent, 0) == "drained"
    info = agent.info()
    assert info.problem is not None
    assert info.problem.cause.endswith("exam")
    assert (info.availability.gpus, info.availability.memory_bytes) == ((0,), 20 << 30)
    say(agent, "resume")
    say(agent, "offer", "--all")
    assert refused(agent, 1) == ""
    until(lambda: agent.info().availability == Availability(), "everything to be offered again")


@pytest.mark.slow
def test_a_drain_ends_the_running_job_and_the_queued_one_starts_afterwards(tmp_path: Path) -> None:
    cards = {"PYTHONPATH": str(CARDS)}
    with two_agents("127.98.0", tmp_path, "test", cards) as agents:
        first, second = agents
        say(second, "offer", "--memory", "20GiB")

        def waits_for(job_id: JobId) -> Kind | None:
            restart = second.record(job_id).restart
            return restart.waits_for.kind if restart and restart.waits_for else None

        held = leave(agents, HOLDS, 0, submitted_s=1.0)
        until(lambda: second.record(held).part.state == "running", "the first job to run")
        log = (second.state / "jobs" / held / "attempt-1" / "log").read_text
        environment = Path(f"/proc/{second.record(held).part.ranks[0].pid}/environ").read_bytes()
        assert f"MNTRAIN_GPU_MEMORY_BYTES={20 << 30}".encode() in environment.split(b"\0"), log()
        say(second, "drain", "--now", "--reason", "exam")
        view = roll_up([first.ended(held), second.ended(held)])
        assert view.state == "failed"
        assert view.problem is not None
        assert (view.problem.kind, view.problem.node) == (Kind.DRAINED, "node2")
        assert view.problem.cause.endswith("exam")
        queued = leave([second], ENDS, 0, submitted_s=2.0)
        until(lambda: waits_for(queued) is Kind.DRAINED, "the reason why it waits")
        say(second, "resume")
        assert second.ended(queued).part.state == "succeeded"
        told = (second.state / "audit.log").read_text()
        assert [f'"what": "{what}"' in told for what in ("offer", "drain", "resume", "stop")] == [
            True
        ] * 4
