"""Gang watch: when a part ends the others. Live gangs are in test_attempts."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
import pytest

from jupyter_mntrain.agent.gang import watch
from jupyter_mntrain.agent.gang.peer_client import PeerClient
from jupyter_mntrain.agent.gang.watch import SYMPTOM_PATIENCE_S, GangWatch, reason_to_end
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.http.agent_calls import AgentCalls, Reply, Request
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank, new_job_id
from jupyter_mntrain.model.lifecycle.restarts import next_restart
from jupyter_mntrain.model.records.job import Attempt, JobRecord, JobSpec, PartStatus
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.trust.credentials import blind_context
from tests.standin.jobs import TWO, record
from tests.waiting import coming
from tests.wording import says


def part(node: str, state, *, cause: str | None = None, is_symptom=False, reason=None):
    kind = Kind.CONNECTION_LOST if is_symptom else Kind.EXCEPTION
    blame = None if cause is None else Problem(kind=kind, cause=cause, time_s=1.0, rank=Rank(1))
    made = PartStatus(node_id=NodeId(node), node=node, state=state, problem=blame)
    return msgspec.structs.replace(made, stop_reason=reason)


def test_nothing_ends_what_goes_on_or_ended_well():
    states = ("pending", "starting", "running", "stopping", "succeeded", "unknown")
    assert reason_to_end([part("node1", state) for state in states]) is None


def test_a_failure_is_told_with_its_node_and_cause():
    parts = [part("node1", "running"), part("node2", "failed", cause="killed by SIGKILL")]
    said = str(reason_to_end(parts))
    assert says("node2: rank 1 failed: killed by SIGKILL", said)
    assert all(word in said for word in ("node2", "1", "killed by SIGKILL"))
    said = str(reason_to_end([part("node3", "failed")]))
    assert "node3" in said
    assert says("node3 failed", said)


def test_a_cause_is_told_before_its_symptoms():
    parts = [
        part("node1", "failed", cause="Connection closed by peer", is_symptom=True),
        part("node2", "failed", cause="ValueError: no"),
    ]
    said = str(reason_to_end(parts))
    assert says("node2: rank 1 failed: ValueError: no", said)
    assert all(word in said for word in ("node2", "ValueError: no"))
    assert "Connection closed by peer" not in said


def test_a_reason_is_handed_on_as_it_was_given():
    told = part("node1", "canceled", reason="node3 failed: rank 4: out of memory")
    assert reason_to_end([part("node2", "running"), told]) == "node3 failed: rank 4: out of memory"
    said = str(reason_to_end([part("node1", "canceled")]))
    assert "node1" in said
    assert says("node1 was stopped", said)


@pytest.mark.anyio
async def test_a_closed_connection_alone_ends_nobody_before_its_cause_could_be_told(tmp_path):
    now = [100.0]
    known = JobRecord(
        job_id=new_job_id(),
        spec=JobSpec(entry=("x.py",), participants=()),
        attempt=Attempt(number=1, placements=(), master_address="", master_port=0, submitted_s=0.0),
        part=part("node1", "running"),
    )
    watching = GangWatch(
        LocalJob(tmp_path, known, GpuReader()),
        partial(PeerClient, blind_context()),
        clock=lambda: now[0],
    )
    closed = part("node1", "failed", cause="Connection closed by peer", is_symptom=True)
    killed = part("node2", "failed", cause="killed by SIGKILL")
    assert watching.waits_for_a_cause([closed])
    assert not watching.waits_for_a_cause([closed, killed])
    now[0] += SYMPTOM_PATIENCE_S
    assert not watching.waits_for_a_cause([closed])


class Forgetful(AgentCalls):
    """An agent whose state directory was emptied.

    Args:
        asked: gets the path of each request.
    """

    def __init__(self, address: str, node: str, asked: list[str]) -> None:
        super().__init__(address, node)
        self._asked = asked

    async def send(self, request: Request) -> Reply:
        self._asked.append(request.path)
        return Reply(
            is_success=False,
            body=msgspec.json.encode(Problem(kind=Kind.NO_SUCH_JOB, cause="not known here")),
        )


@pytest.mark.anyio
@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize(
    ("age_s", "state"), [(0.0, "running"), (watch.START_PATIENCE_S + 1, "failed")]
)
async def test_a_participant_without_a_record_ends_the_others_as_failed(
    tmp_path, monkeypatch, own, age_s, state
):
    """Once no start of the attempt can be on its way: before, its silence proves nothing."""
    monkeypatch.setattr(watch, "WATCH_INTERVAL_S", 0.01)
    lost = TWO[1 - own]
    job = LocalJob(tmp_path, record(own, submitted_s=time.time() - age_s), GpuReader())
    asked: list[str] = []
    watching = asyncio.ensure_future(
        GangWatch(job, lambda at: Forgetful(at.agent[0], at.node, asked)).run()
    )
    # When it asks again, it has judged the answer before.
    await coming(lambda: len(asked) > 2 or watching.done(), "the watch to ask again")
    if state == "failed":
        job.poll(0.0)
    part = job.record.part
    assert part.state == state
    if state == "failed":
        assert (part.problem.kind, part.problem.node) == (Kind.NO_RECORD, lost.node)
        parts = await watching
        restarting = record(own, "failed", spec={"max_restarts": 3})
        assert next_restart(restarting, parts, 0.0) is None, "it could not start there"
    watching.cancel()
    job.close()
