"""Scripted agents in their own thread, for programs without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_mntrain.cluster.loop import LoopThread
from tests.standin.agent import FakeAgent


class Elsewhere:
    """Agents in a thread of their own, as they are to the synchronous face."""

    def __init__(self, addresses: Iterator[str]) -> None:
        self._addresses = addresses
        self._thread = LoopThread("fake agents")
        self._agents: list[FakeAgent] = []

    def agent(self, name: str = "node1", **fields: Any) -> FakeAgent:
        basis: dict[str, Any] = {"address": next(self._addresses), "heartbeat_every_s": 0.2}

        async def make() -> FakeAgent:
            agent = FakeAgent(name, **(basis | fields))
            await agent.start()
            return agent

        agent = self._thread.run(make())
        self._agents.append(agent)
        return agent

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call something of an agent where the agent lives; await it if it is to be awaited."""

        async def call() -> Any:
            result = work(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return self._thread.run(call())

    def close(self) -> None:
        for agent in self._agents:
            self.do(agent.die)
        self._thread.close()
