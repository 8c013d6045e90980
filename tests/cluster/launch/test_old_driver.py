"""A driver that is too old for torch: refused before anything is leased."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.standin.agent import FakeAgent
from tests.standin.nodes import gpu
from tests.waiting import coming

pytestmark = pytest.mark.anyio
JOB = JobId("j-0000beef")


def spec(*gpus: int) -> JobSpec:
    return JobSpec(entry=("-m", "trainer"), participants=(Participant(node="node1", gpus=gpus),))


async def test_a_driver_older_than_torchs_cuda_is_refused_and_counts_for_gpus_only(
    agent_here: Callable[..., Awaitable[FakeAgent]], no_alerts: None
) -> None:
    agent = await agent_here("node1", gpus=(gpu(0),), heartbeat_every_s=0.3)
    agent.versions = {"torch": "2.13.0", "cuda": "13.0", "driver": "570.1"}
    live = ClusterView("default", discovery=StaticDiscovery(), clock=time)
    await live.start([(agent.where, "typed")])
    try:
        await coming(lambda: [view.liveness for view in live.nodes] == ["up"])
        launcher = AgentLauncher(live, clock=time)
        with pytest.raises(SpecError) as refused:
            await launcher.render(spec(0))
        assert (refused.value.kind, refused.value.node) == (Kind.OLD_DRIVER, "node1")
        with pytest.raises(SpecError) as refused:
            await launcher.launch(spec(0), JOB)
        assert refused.value.kind is Kind.OLD_DRIVER
        assert agent.leases == {}
        assert (await launcher.launch(spec(), JOB)).state == "running"
    finally:
        await live.close()
