"""Distrust: each reason why an agent or driver is not trusted gets its own error."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jupyter_mntrain.cluster.agents.client import AgentClient, Connector
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.certificates import (
    pem_of,
)
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests import trusted
from tests.cluster.agents.conftest import MakeAgent, failure
from tests.standin.agent import FakeAgent
from tests.wording import says

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("cluster", "kind", "words"),
    [
        ("theirs", Kind.WRONG_CLUSTER, "'theirs'"),
        ("test", Kind.OTHER_AUTHORITY, "a different cluster that is also named"),
    ],
)
async def test_an_agent_of_another_cluster(
    connector: Connector, agent_here: MakeAgent, cluster: str, kind: Kind, words: str
) -> None:
    agent = await agent_here(authority=Authority.make(cluster))
    error = await failure(AgentClient(connector, agent.where))
    assert error.kind is kind
    assert says(words, str(error))


@pytest.mark.parametrize(
    ("issued", "lifetime", "kind", "words"),
    [
        (timedelta(days=-3), timedelta(days=1), Kind.EXPIRED, "its certificate expired on"),
        (timedelta(days=3), timedelta(days=9), Kind.CLOCK_OFF, "set this machine's clock"),
    ],
)
async def test_an_agent_whose_certificate_is_not_of_today(
    connector: Connector,
    agent_here: MakeAgent,
    issued: timedelta,
    lifetime: timedelta,
    kind: Kind,
    words: str,
) -> None:
    agent = await agent_here(issued=datetime.now(UTC) + issued, lifetime=lifetime)
    for node_id in (None, NodeId(agent.node_id)):
        error = await failure(AgentClient(connector, agent.where, node_id=node_id))
        assert error.kind is kind
        assert says(words, str(error))


async def test_an_agent_that_was_revoked_is_left_also_when_it_is_listened_to(
    connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here(heartbeat_every_s=0.05)
    client = AgentClient(connector, agent.where)
    with pytest.raises(NodeError) as caught:
        await revoke_while_listening(connector, client, agent)
    assert caught.value.kind is Kind.REVOKED
    error = await failure(AgentClient(connector, agent.where))
    assert error.kind is Kind.REVOKED


async def test_a_stream_ends_with_the_certificate_of_the_agent(
    connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here(heartbeat_every_s=0.05, lifetime=timedelta(days=1))
    messages = AgentClient(connector, agent.where).stream()
    assert await anext(messages) is not None
    connector.clock = lambda: time.time() + timedelta(days=2).total_seconds()
    with pytest.raises(NodeError) as caught:
        await anext(messages)
    assert caught.value.kind is Kind.EXPIRED


async def revoke_while_listening(
    connector: Connector, client: AgentClient, agent: FakeAgent
) -> None:
    async for _ in client.stream():
        take_revocation(connector, agent.serial)


def take_revocation(connector: Connector, serial: int) -> None:
    later = datetime.now(UTC) + timedelta(seconds=2)
    revocations = trusted.authority().revocations([serial], 2, later)
    connector.identity.credentials.take_revocations(pem_of(revocations))


@pytest.mark.parametrize(
    ("issued", "lifetime", "kind", "words"),
    [
        (
            timedelta(days=-3),
            timedelta(days=1),
            Kind.EXPIRED,
            "this driver's own certificate expired",
        ),
        (timedelta(days=3), timedelta(days=9), Kind.CLOCK_OFF, "its clock is off"),
    ],
)
async def test_a_driver_whose_certificate_is_not_of_today(
    agent_here: MakeAgent,
    tmp_path: Path,
    issued: timedelta,
    lifetime: timedelta,
    kind: Kind,
    words: str,
) -> None:
    agent = await agent_here()
    now = datetime.now(UTC) + issued
    trusted.make_credentials(tmp_path, trusted.DRIVER, now=now, lifetime=lifetime)
    connector = Connector(DriverMembership(tmp_path))
    error = await failure(AgentClient(connector, agent.where))
    await connector.close()
    assert error.kind is kind
    assert says(words, str(error))


async def test_whoever_answers_in_the_place_of_the_node_that_is_meant(
    connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here("node7")
    error = await failure(AgentClient(connector, agent.where, node_id=NodeId("id-of-node1")))
    assert error.kind is Kind.WRONG_NODE


@pytest.mark.wording
@pytest.mark.parametrize(
    ("protocol", "told"),
    [(99, r"protocol 99, newer than our .*here"), (1, r"1, older.*there")],
)
async def test_an_agent_of_another_protocol(
    connector: Connector, agent_here: MakeAgent, protocol: int, told: str
) -> None:
    agent = await agent_here(protocol=protocol)
    error = await failure(AgentClient(connector, agent.where))
    assert error.kind is Kind.OTHER_PROTOCOL
    assert re.search(told, str(error))
