"""Clients of failing agents: their connections, and the expected errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from jupyter_mntrain.cluster.agents.client import AgentClient, Connector
from jupyter_mntrain.model.errors import (
    NodeError,
)
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests.standin.agent import FakeAgent

MakeAgent = Callable[..., Awaitable[FakeAgent]]


@pytest.fixture
async def connector(anyio_backend: str, own_home: None) -> AsyncIterator[Connector]:
    identity = DriverMembership.find("default")
    assert identity is not None
    made = Connector(identity)
    yield made
    await made.close()


async def failure(client: AgentClient) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await client.node_info()
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    return caught.value
