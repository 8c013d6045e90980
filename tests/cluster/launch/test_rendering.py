"""Rendering: the commands of a launch, from what the nodes have."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.cluster.conftest import until
from tests.standin.agent import FakeAgent
from tests.standin.nodes import gpu

pytestmark = pytest.mark.anyio


async def test_gpus_are_named_as_the_agent_will(
    agent_here: Callable[..., Awaitable[FakeAgent]],
) -> None:
    agent = await agent_here("node1", gpus=(gpu(0), gpu(1)))
    live = ClusterView("default", discovery=StaticDiscovery(), clock=time)
    await live.start([(agent.where, "typed")])
    try:
        await until(lambda: [view.liveness for view in live.nodes] == ["up"])
        chosen = Participant(node="node1", nproc=1, gpus=(1,))
        spec = JobSpec(entry=("-m", "trainer"), participants=(chosen,))
        (command,) = await AgentLauncher(live, clock=time).render(spec)
        assert command.environment["CUDA_VISIBLE_DEVICES"] == "node1-GPU-1"
    finally:
        await live.close()
