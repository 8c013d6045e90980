"""Admission desk: sorts announced agents, and does not remember a flood of announcements."""

from __future__ import annotations

import time

import msgspec
import pytest

from jupyter_mntrain.cluster.admission.desk import AdmissionDesk
from jupyter_mntrain.cluster.discovery.discovery import MOST_ANNOUNCED, FoundAgent
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests.wording import wording

pytestmark = pytest.mark.anyio


class Watching:
    """A desk, and what it has let through."""

    def __init__(self, cluster: str) -> None:
        self.members: list[FoundAgent] = []
        self.opened = 0
        self.desk = AdmissionDesk(
            cluster, now=time.time, on_member=self.members.append, on_open=self._opened
        )

    def _opened(self) -> None:
        self.opened += 1


def found(number: int = 0, **fields: str) -> FoundAgent:
    address = f"10.{number >> 8}.{number & 255}.1:8765"
    return FoundAgent(addresses=(address,), instance=f"i{number}", name=f"n{number}", **fields)  # type: ignore[arg-type]


async def test_members_are_told_from_strangers_by_their_authority_not_by_their_name() -> None:
    watching = Watching("test")
    watching.desk.look()
    ours = watching.desk.identity
    assert ours is not None
    watching.desk.take(
        found(1, authority=ours.credentials.authority_id, cluster="called otherwise")
    )
    watching.desk.take(found(2, authority="0123456789abcdef", cluster="test"))
    watching.desk.take(found(3))  # it does not say: it is asked, and must prove it
    assert [one.name for one in watching.members] == ["n1", "n3"]
    assert [one.name for one in watching.desk.strangers.values()] == ["n2"]
    await watching.desk.close()


async def test_a_cluster_that_has_ended_is_announced_no_longer() -> None:
    watching = Watching("test")
    watching.desk.look()
    ours = watching.desk.identity
    assert ours is not None
    member = found(1, authority=ours.credentials.authority_id)
    strange, stays = (found(n, authority="0123456789abcdef", cluster="demo") for n in (2, 3))
    for one in (member, strange, stays):
        watching.desk.take(one)
    for one in (member, strange):
        watching.desk.take(msgspec.structs.replace(one, is_gone=True))
    assert list(watching.desk.strangers) == ["i3"]
    assert watching.members == [member], "its heartbeat decides"
    await watching.desk.close()


async def test_what_is_withdrawn_before_there_are_keys_is_forgotten() -> None:
    watching = Watching("new")
    watching.desk.look()
    watching.desk.take(found(1))
    watching.desk.take(found(2))
    watching.desk.take(msgspec.structs.replace(found(1), is_gone=True))
    DriverMembership.make("new")
    watching.desk.look()
    assert [one.name for one in watching.members] == ["n2"]
    await watching.desk.close()


async def test_what_is_found_before_there_are_keys_is_told_apart_when_there_are() -> None:
    watching = Watching("new")
    watching.desk.look()
    with pytest.raises(
        TrustError, match=wording("no cluster named 'new' exists on this machine yet")
    ):
        watching.desk.client("10.0.0.1:8765")
    watching.desk.take(found(1))
    assert (watching.members, watching.opened) == ([], 0)
    DriverMembership.make("new")
    watching.desk.look()
    assert ([one.name for one in watching.members], watching.opened) == (["n1"], 1)
    await watching.desk.close()


async def test_a_flood_of_announcements_is_not_remembered() -> None:
    closed, watching = Watching("new"), Watching("test")
    closed.desk.look()
    watching.desk.look()
    for number in range(MOST_ANNOUNCED + 100):
        closed.desk.take(found(number))
        watching.desk.take(found(number, authority="ab" * 8, cluster="x"))
    assert len(watching.desk.strangers) == MOST_ANNOUNCED
    # Whoever is known already is still followed.
    moved = FoundAgent(addresses=("10.9.9.9:1",), instance="i0", name="n0", authority="ab" * 8)
    watching.desk.take(moved)
    assert watching.desk.strangers["i0"] == moved
    DriverMembership.make("new")
    closed.desk.look()
    assert len(closed.members) == MOST_ANNOUNCED
    for one in (closed, watching):
        await one.desk.close()


async def test_nobody_is_let_in_without_an_invitation_or_by_another_s() -> None:
    watching = Watching("mine")
    DriverMembership.make("mine").authorized().invite()
    watching.desk.look()
    watching.desk.take(found(1, joining="0123456789abcdef"))
    assert watching.members == []
    assert not await watching.desk.lets_in("127.0.0.1:9")
    await watching.desk.close()
