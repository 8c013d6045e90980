"""Bounds of strangers: who must go, and how often an address may come."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.iostream import SSLIOStream

from jupyter_mntrain.http.bounded_server import BoundedServer, Bounds, Rate, Strangers


class Line:
    """A connection, as far as its place is concerned."""


def test_the_oldest_of_the_greediest_address_makes_room() -> None:
    strangers = Strangers(4)
    greedy = [Line() for _ in range(3)]
    for one in greedy:
        assert strangers.add("10.0.0.9", one) is None  # type: ignore[arg-type]
    others = [Line() for _ in range(3)]
    assert strangers.add("10.0.0.1", others[0]) is None  # type: ignore[arg-type]
    assert strangers.add("10.0.0.2", others[1]) is greedy[0]  # type: ignore[arg-type]
    assert strangers.add("10.0.0.9", greedy[0]) is greedy[1]  # type: ignore[arg-type]
    assert strangers.add("10.0.0.3", others[2]) is greedy[2]  # type: ignore[arg-type]
    strangers.remove("10.0.0.1", others[0])  # type: ignore[arg-type]
    strangers.remove("10.0.0.1", others[0])  # type: ignore[arg-type]
    assert len(strangers) == 3
    assert set(strangers.all()) == {others[1], greedy[0], others[2]}


def test_an_address_may_come_in_a_burst_and_then_at_its_rate() -> None:
    now_s = 0.0
    rate = Rate(per_s=2, burst=5, clock=lambda: now_s)
    assert [rate.allows("10.0.0.9") for _ in range(7)] == [True] * 5 + [False] * 2
    assert rate.allows("10.0.0.1"), "each address for itself"
    now_s = 1.0
    assert [rate.allows("10.0.0.9") for _ in range(3)] == [True, True, False]
    now_s = 1000.0
    assert sum(rate.allows("10.0.0.9") for _ in range(20)) == 5


def test_addresses_without_end_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rate, "MOST_ADDRESSES", 10)
    rate = Rate(per_s=1, burst=1)
    assert all(rate.allows(f"10.0.{number // 256}.{number % 256}") for number in range(1000))
    assert len(rate._left) == 10


class ClosedAfterHandshake(SSLIOStream):
    """A peer that was gone before anybody looked at its certificate."""

    socket = None  # as tornado leaves it

    def __init__(self) -> None:
        """Of no socket."""

    async def wait_for_handshake(self) -> Any:  # type: ignore[override]
        return self

    def closed(self) -> bool:
        return True


@pytest.mark.anyio
async def test_who_leaves_right_after_the_handshake_is_nobody() -> None:
    def member_of(stream: Any, _: str) -> str:
        return str(stream.socket.getpeercert())

    bounds = Bounds(handshakes=4, handshake_s=1.0, connections=4, connections_each=4)
    server = BoundedServer(lambda _: None, bounds=bounds, member_of=member_of)
    await server._greet(ClosedAfterHandshake(), ("10.0.0.9", 1))
    assert server._members == {}
