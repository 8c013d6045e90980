"""Usage routes: a real agent tells what its node did, also of the time before it was restarted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.agent_hosts import listed_interfaces
from tests.agent.live import LiveAgent, launch
from tests.waiting import until

pytestmark = pytest.mark.agents


def history(agent: LiveAgent, query: str = "") -> NodeHistory:
    return msgspec.json.decode(agent.get(f"/v1/history{query}").content, type=NodeHistory)


def known(agent: LiveAgent) -> int:
    """Seconds of which the load is known."""
    parts = history(agent, "?points=4000").parts
    lines = (line for part in parts if part.kind == "node" for line in part.lines)
    line = next((line for line in lines if line.figure == "cpu_share"), None)
    return 0 if line is None else sum(value is not None for value in line.mean)


def test_an_agent_tells_what_its_node_did_before_and_after_a_restart(
    new_agent: Callable[..., LiveAgent],
) -> None:
    agent = new_agent()
    job_id = launch([agent], "pass")
    agent.ended(job_id)
    until(lambda: known(agent) >= 2, "two seconds of history")
    found = history(agent)
    assert found.node == "node1"
    assert found.step_s * found.points >= 3600
    assert [job.job_id for job in found.jobs] == [job_id]
    info = msgspec.json.decode(agent.get("/v1/node").content, type=NodeInfo)
    listed = {one.name for one in listed_interfaces(info.inventory.interfaces, info.addresses)}
    assert listed == {"lo"}, "this agent can be reached over loopback only"
    assert {part.key for part in found.parts if part.kind == "interface"} == listed
    if not any(part.kind == "gpu" for part in found.parts):
        assert found.gpu_note, "no GPU without a reason"

    before = known(agent)
    agent.end()
    agent.start()
    until(lambda: known(agent) > before + 1, "what came before, and more")
    before_all, *rest = history(agent).gaps
    assert before_all.state == "before"
    assert all(gap.state == "off" for gap in rest)

    for query in ("?since=-1", "?since=soon", "?points=1", "?points=99999", "?since=9&until=8"):
        answer = agent.get(f"/v1/history{query}")
        assert answer.status_code == 400, query
        assert answer.json()["fix"], query
    assert history(agent, "?since=0&points=2").points == 2
