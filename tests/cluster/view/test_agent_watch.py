"""Agent watch, by a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jupyter_mntrain.cluster.agents.client import AgentClient, Connector
from jupyter_mntrain.cluster.discovery.discovery import FoundAgent
from jupyter_mntrain.cluster.view import agent_watch as watch_module
from jupyter_mntrain.cluster.view.agent_watch import AgentWatch
from jupyter_mntrain.model.api import Goodbye, Hello, NodeChanged, StreamMessage
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests.cluster.conftest import FakeClock
from tests.standin.agent import FakeAgent
from tests.standin.faults import Hang, Refuse
from tests.waiting import coming

pytestmark = pytest.mark.anyio
MakeAgent = Callable[..., Awaitable[FakeAgent]]


class Watched:
    """A running watch and what it said."""

    def __init__(self, clock: FakeClock, connector: Connector) -> None:
        self.clock = clock
        self.connector = connector
        self.messages: list[StreamMessage] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, *addresses: str, **fields: Any) -> AgentWatch:
        watch = AgentWatch(
            addresses,
            "typed",
            client=lambda address, node_id: AgentClient(self.connector, address, node_id=node_id),
            clock=self.clock,
            on_message=lambda _, message: self.messages.append(message),
            on_change=lambda _: None,
            **fields,
        )
        self.tasks.append(asyncio.create_task(watch.run()))
        return watch

    async def silence(self, watch: AgentWatch, seconds: float) -> None:
        """Time passes; the watch looks, and its probe, if it sends one, ends."""
        self.clock.now += seconds
        watch.tick()
        if watch._probe is not None:
            await asyncio.wait([watch._probe])
        watch.tick()


@pytest.fixture
async def watched(anyio_backend: str, clock: FakeClock, own_home: None) -> AsyncIterator[Watched]:
    identity = DriverMembership.find("default")
    assert identity is not None
    connector = Connector(identity)
    made = Watched(clock, connector)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await connector.close()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(watch_module, "LAST_RETRY_S", 0.05)


async def up(watch: AgentWatch) -> None:
    await coming(lambda: watch.view.liveness == "up")


def kind_of(watch: AgentWatch) -> Kind | None:
    return watch.view.problem and watch.view.problem.kind


async def test_hello_makes_a_node_up(watched: Watched, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    assert watch.view.liveness == "connecting"
    await up(watch)
    assert watch.view.info == agent.info
    assert watch.view.last_seen_s == watched.clock.time()
    assert watch.view.problem is None
    assert isinstance(watched.messages[0], Hello)


async def test_a_beat_is_a_word(watched: Watched, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    watched.clock.now += 2.0
    agent.heartbeat()
    await coming(lambda: watch.view.heartbeat)
    watched.clock.now += 2.0
    watch.tick()
    assert watch.view.liveness == "up"


async def test_a_node_that_died_is_suspect_then_lost_and_the_reason_says_why(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    await agent.die()
    await watched.silence(watch, 2.4)
    assert watch.view.liveness == "up"
    await watched.silence(watch, 0.1)
    assert watch.view.liveness == "suspect"
    await watched.silence(watch, 2.9)
    assert watch.view.liveness == "suspect"
    await watched.silence(watch, 0.1)
    assert watch.view.liveness == "lost"
    assert kind_of(watch) is Kind.CONNECTION_REFUSED
    assert watch.view.info is not None, "what it was stays known"


async def test_a_silent_stream_is_not_a_lost_node_if_it_answers_a_direct_question(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    for _ in range(5):
        await watched.silence(watch, 3.0)
        assert watch.view.liveness == "up"
    assert agent.count("node") == 1 + 5, "who it is, and whether it lives"


async def test_a_node_that_hangs_is_lost_only_when_its_probe_has_failed(
    watched: Watched, agent_here: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "PROBE_TIMEOUT_S", 0.1)
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    agent.faults["node"] += [Hang()]
    watched.clock.now += 100.0
    watch.tick()
    assert watch.view.liveness == "suspect", "no answer yet is no answer either way"
    await watched.silence(watch, 0.0)
    assert watch.view.liveness == "lost"


async def test_a_node_that_comes_back_is_up_at_once(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    await agent.die()
    await watched.silence(watch, 3.0)
    await watched.silence(watch, 3.0)
    assert watch.view.liveness == "lost"
    await agent.start()
    await up(watch)
    assert watch.view.problem is None


async def test_a_goodbye_is_believed_until_it_speaks_again(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    agent.faults["stream"] += [Refuse()] * 1000
    agent.say(Goodbye(reason="maintenance"))
    await coming(lambda: watch.view.liveness == "lost")
    assert kind_of(watch) is Kind.AGENT_STOPPED
    assert "maintenance" in str(watch.view.problem)
    agent.faults["stream"][:] = [Refuse(kind=Kind.CLOCK_OFF)] * 1000
    watch.try_now()
    await coming(lambda: kind_of(watch) is Kind.CLOCK_OFF)
    agent.faults["stream"].clear()
    await agent.die()
    await agent.start()
    await up(watch)


async def test_silence_that_was_our_own_is_forgiven(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    watched.clock.now += 60.0
    watch.forgive(59.0)
    watch.tick()
    assert watch.view.liveness == "up"
    assert agent.count("node") == 1, "who it is"
    watch.forgive(1e9)
    watch.tick()
    assert watch.view.liveness == "up", "never in the future"
    watched.clock.now += 2.6
    watch.tick()
    assert watch.view.liveness == "suspect"


async def test_a_node_never_heard_of_is_connecting_with_its_reason_and_lost_later(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    await agent.die()
    watch = watched.begin(agent.where)
    await coming(lambda: watch.view.problem)
    assert watch.view.liveness == "connecting"
    assert watch.view.name == agent.where
    await watched.silence(watch, 6.0)
    assert watch.view.liveness == "lost"


async def test_the_next_address_is_tried_when_one_fails(
    watched: Watched, agent_here: MakeAgent
) -> None:
    dead, alive = await agent_here("dead"), await agent_here("alive")
    await dead.die()
    watch = watched.begin(dead.where, alive.where)
    await up(watch)
    assert watch.view.address == alive.where


class Nowhere:
    """A client of an address to which no route leads."""

    async def stream(self) -> AsyncIterator[StreamMessage]:
        raise await self.node_info()
        yield

    async def node_info(self) -> NodeError:
        raise NodeError("no route", kind=Kind.UNREACHABLE)


async def test_a_machine_that_refuses_is_there_whatever_its_other_addresses_say(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where, "nowhere:1")
    real = watch.client
    watch.client = lambda where, node: Nowhere() if where == "nowhere:1" else real(where, node)  # type: ignore[assignment, return-value]
    await up(watch)
    await agent.die()
    await coming(lambda: watch._refused)
    await watched.silence(watch, 3.0)
    await watched.silence(watch, 3.0)
    said: list[Kind | None] = []
    watch.on_change = lambda one: said.append(kind_of(one))
    await coming(lambda: len(said) > 5)  # of the one address and of the other
    assert (watch.view.liveness, {*said}) == ("lost", {Kind.CONNECTION_REFUSED})


async def test_another_agent_at_an_announced_address_is_not_taken_for_it(
    watched: Watched, agent_here: MakeAgent
) -> None:
    stranger, announced = await agent_here("stranger"), await agent_here("announced")
    watch = watched.begin(stranger.where, announced.where, node_id=NodeId(announced.node_id))
    await up(watch)
    assert watch.view.name == "announced"


async def test_a_new_announcement_brings_a_new_address(
    watched: Watched, agent_here: MakeAgent
) -> None:
    old, new = await agent_here("a", node_id="same"), await agent_here("a", node_id="same")
    watch = watched.begin(old.where)
    await up(watch)
    await old.die()
    watch.expect(FoundAgent(addresses=(new.where,), node_id=NodeId("same")))
    await coming(lambda: watch.view.address == new.where and watch.view.info == new.info)


async def test_changes_of_the_node_are_taken(watched: Watched, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    watch = watched.begin(agent.where)
    await up(watch)
    agent.started_s = 42.0
    agent.say(NodeChanged(node=agent.info))
    await coming(lambda: watch.view.info and watch.view.info.started_s == 42.0)


async def test_of_another_cluster_is_a_reason_and_never_up(
    watched: Watched, agent_here: MakeAgent
) -> None:
    agent = await agent_here(authority=Authority.make("theirs"))
    watch = watched.begin(agent.where)
    await coming(lambda: watch.view.problem)
    assert kind_of(watch) is Kind.WRONG_CLUSTER
    assert "theirs" in str(watch.view.problem)
    assert watch.view.liveness == "connecting"
