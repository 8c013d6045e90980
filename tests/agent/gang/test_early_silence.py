"""A node that is cut off before the first step ends the attempt, in bounded time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import pytest

from jupyter_mntrain.agent.gang import watch
from jupyter_mntrain.agent.gang.watch import PATIENCE_S, EarlySilence
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import PartStatus, Placement, RankStatus
from tests.standin.jobs import TWO, record

pytestmark = pytest.mark.anyio


def part(step: int | None = None) -> PartStatus:
    ranks = (RankStatus(rank=Rank(0), state="running", step=step),)
    return msgspec.structs.replace(record(0).part, ranks=ranks)


def at(address: str) -> Placement:
    return msgspec.structs.replace(TWO[1], agent=(address,))


@pytest.fixture
def mute() -> Iterator[str]:
    """An address of which no packet comes back: its queue of connections is full."""
    with ExitStack() as held:
        full = held.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waits = held.enter_context(socket.socket())
            waits.settimeout(0)
            waits.connect_ex(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"


@pytest.fixture
def refusing() -> str:
    """An address where nothing listens, of a machine that runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CONNECT_S", 0.2)


async def test_it_is_named_once_its_silence_was_long(mute: str) -> None:
    watch = EarlySilence()
    assert await watch.look([part()], [at(mute)], 100.0) is None
    assert await watch.look([part()], [at(mute)], 99.0 + PATIENCE_S) is None
    found = await watch.look([part()], [at(mute)], 100.0 + PATIENCE_S)
    assert found is not None
    assert (found.kind, found.node) == (Kind.NODE_LOST, TWO[1].node)


async def test_its_silence_begins_anew_when_it_was_heard(mute: str) -> None:
    watch = EarlySilence()
    await watch.look([part()], [at(mute)], 100.0)
    await watch.look([part()], [], 101.0)
    assert await watch.look([part()], [at(mute)], 100.0 + PATIENCE_S) is None
    assert await watch.look([part()], [at(mute)], 100.0 + 2 * PATIENCE_S) is not None


async def test_after_a_step_its_ranks_may_go_on(mute: str) -> None:
    watch = EarlySilence()
    await watch.look([part(step=1)], [at(mute)], 100.0)
    assert await watch.look([part(step=1)], [at(mute)], 100.0 + 2 * PATIENCE_S) is None


async def test_a_session_has_begun_without_a_step(mute: str) -> None:
    """A cable that is pulled for two minutes does not cost the variables of all ranks."""
    watch = EarlySilence()
    alone = (RankStatus(rank=Rank(0), state="running", group_size=2),)
    ready = msgspec.structs.replace(record(0).part, ranks=alone)
    for parts in ([ready], [part()]):
        await watch.look(parts, [at(mute)], 100.0, is_session=True)
        late_s = 100.0 + 2 * PATIENCE_S
        found = await watch.look(parts, [at(mute)], late_s, is_session=True)
        assert (found is None) == (parts == [ready])


async def test_where_only_the_agent_has_died_its_ranks_may_live(refusing: str) -> None:
    watch = EarlySilence()
    await watch.look([part()], [at(refusing)], 100.0)
    assert await watch.look([part()], [at(refusing)], 100.0 + 2 * PATIENCE_S) is None
