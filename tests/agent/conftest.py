from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.agent.forking.python import forking_python
from tests.agent.live import LiveAgent, free_port


@pytest.fixture
def new_agent(
    loopback_addresses: Iterator[str], tmp_path: Path
) -> Iterator[Callable[..., LiveAgent]]:
    """Make (and start) agents; all of them and all they started are ended afterwards."""
    agents: list[LiveAgent] = []

    def new(
        *options: str,
        cluster: str = "test",
        environment: Mapping[str, str] = {},
        slot: str = "",
        python: str | None = None,
    ) -> LiveAgent:
        name = slot or f"node{len(agents) + 1}"
        address = next(loopback_addresses)
        port = 0 if slot else free_port(address)
        own, is_slot = python or forking_python(), bool(slot)
        agent = LiveAgent(
            name, address, port, tmp_path / name, cluster, python=own, is_slot=is_slot
        )
        agents.append(agent)
        return agent.start(*options, environment=environment)

    yield new
    for agent in agents:
        agent.end()
