"""GPU contention: jobs that want the same GPUs, on real agents; only NVML is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from tests import waiting
from tests.agent.live import LiveAgent, start_request, two_agents

pytestmark = pytest.mark.slow

CARDS = Path(__file__).parents[1] / "programs" / "cards"

HOLDS = """
import os, time
print("cards", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(600)
"""
ENDS = "import os; print('cards', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    environment = {"PYTHONPATH": str(CARDS)}
    state = tmp_path_factory.mktemp("cards")
    with two_agents("127.92.0", state, "test", environment) as both:
        yield both


def leave(agents: list[LiveAgent], script: str, *gpus: int, submitted_s: float) -> JobId:
    """In the queue, for the same GPUs of each node."""
    job_id = new_job_id()
    asked = start_request(agents, script, job_id, 0, 0)
    places = [msgspec.structs.replace(place, gpus=gpus) for place in asked.attempt.placements]
    wanted = [msgspec.structs.replace(one, gpus=gpus) for one in asked.spec.participants]
    request = msgspec.structs.replace(
        asked,
        attempt=msgspec.structs.replace(
            asked.attempt, placements=tuple(places), submitted_s=submitted_s
        ),
        spec=msgspec.structs.replace(asked.spec, participants=tuple(wanted)),
    )
    for agent in reversed(agents):
        answer = agent.send("PUT", f"/v1/jobs/{job_id}", request)
        assert answer.status_code == 200, answer.text
    return job_id


def test_jobs_that_want_the_same_gpus_take_turns(
    agents: list[LiveAgent],
) -> None:
    def view(job_id: JobId) -> JobView:
        leased = [[gpu for lease in one.info().leases for gpu in lease.gpus] for one in agents]
        assert all(len(set(gpus)) == len(gpus) for gpus in leased), "a GPU is leased twice"
        return roll_up([agent.record(job_id) for agent in agents])

    def waits_for(job_id: JobId) -> Kind | None:
        restart = agents[0].record(job_id).restart
        return restart.waits_for.kind if restart and restart.waits_for else None

    assert [len(agent.info().inventory.gpus) for agent in agents] == [2, 2]
    first = leave(agents, HOLDS, 0, submitted_s=1.0)
    waiting.until(lambda: view(first).state == "running", "the first job to run")
    beside = leave(agents, ENDS, 1, submitted_s=2.0)
    waiting.until(lambda: view(beside).state == "succeeded", "the other GPU's job to end")
    assert view(first).state == "running"
    both = leave(agents, ENDS, 0, 1, submitted_s=3.0)
    waiting.until(lambda: waits_for(both) is Kind.GPU_TAKEN, "the reason of the second")
    third = leave(agents, ENDS, 0, submitted_s=4.0)
    waiting.until(lambda: waits_for(third) is not None, "a reason of the third")
    assert view(both).state == view(third).state == "pending"
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{first}/stop", {"reason": "enough", "grace_s": 0})
    for job_id in (both, third):
        waiting.until(lambda job_id=job_id: view(job_id).state in TERMINAL, f"{job_id} to end")
        assert view(job_id).state == "succeeded"
    for job_id, cards in (
        (first, "GPU-0"),
        (beside, "GPU-1"),
        (both, "GPU-0,GPU-1"),
        (third, "GPU-0"),
    ):
        for agent in agents:
            log = agent.get(f"/v1/jobs/{job_id}/log?offset=0&limit=100000").text
            assert f"cards {cards}\n" in log
    assert not any(agent.info().leases for agent in agents)
