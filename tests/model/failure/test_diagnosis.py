"""Who is to blame for a job that does not get on: whoever does not wait for somebody else."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Doing,
    JobState,
    LinkTrouble,
    PartStatus,
    RankStack,
    Stall,
    Trouble,
)


def part(
    number: int, *doing: Doing, state: JobState = "running", where: str = "", since_s: float = 5.0
) -> PartStatus:
    """Node ``n{number}`` with ranks from ``10 * number`` on; without any, it gets on."""
    stacks = tuple(
        RankStack(rank=Rank(10 * number + index), doing=one, pid=100 + index, where=where)
        for index, one in enumerate(doing)
    )
    stall = Stall(since_s=since_s, limit_s=10.0, step=3, stacks=stacks) if doing else None
    return PartStatus(node_id=NodeId(f"{number:032x}"), node=f"n{number}", state=state, stall=stall)


WAITS: Doing = "waiting for others"


@pytest.mark.parametrize(
    ("parts", "node", "rank", "says", "fix"),
    [
        ([part(0, WAITS), part(1, "stopped")], "n1", 10, "rank 10 on n1 was stopped", "kill -CONT"),
        (
            [part(0, WAITS), part(1, "busy", where="load (data.py:12)")],
            "n1",
            10,
            "rank 10 on n1 is in load (data.py:12), and the others wait for it",
            "that rank's stack",
        ),
        ([part(0, "busy", "stopped"), part(1, WAITS)], "n0", 1, "stopped", "kill -CONT 101"),
        ([part(0, WAITS), part(1, "in the kernel")], "n1", 10, "hangs in the kernel", "dmesg"),
        ([part(0, WAITS), part(1, state="unknown")], "n1", None, "n1 does not answer", "nodes"),
        (
            [part(0, WAITS), part(1, WAITS)],
            None,
            None,
            "through between n0 and n1",
            "measure the links",
        ),
        ([part(0, WAITS, WAITS)], None, None, "all ranks wait for each other", "has a receive"),
        ([part(0, WAITS), part(1, "not known")], None, None, "not all of them report", "Recorder"),
        (
            [part(0, "busy"), part(1, "busy")],
            "n0",
            0,
            "ranks 0 and 10 are busy",
            "that rank's stack",
        ),
    ],
)
def test_the_diagnosis(
    parts: list[PartStatus], node: str | None, rank: int | None, says: str, fix: str
) -> None:
    found = diagnose(parts)
    assert found is not None
    assert (found.node, found.rank) == (node, rank)
    assert says in found.summary
    assert fix in found.fix


def trouble(kind: Trouble, peer: str = "") -> LinkTrouble:
    return LinkTrouble(interface="eth1", trouble=kind, peer=peer)


@pytest.mark.parametrize(
    ("first", "second", "node", "says", "fix"),
    [
        ((), (trouble("down"),), "n1", "eth1 on n1 is down", "cable"),
        (
            (trouble("no connection", "n1"),),
            (trouble("no connection", "n0"),),
            "n1",
            "no data gets through between n0 and n1 over eth1: connecting gets no answer",
            "switch",
        ),
        (
            (trouble("no connection", "n1"),),
            (),
            "n1",
            "n0 cannot connect to n1 over eth1, though n1 can connect to n0: a firewall on n1",
            "let n0 connect to n1",
        ),
        (
            (trouble("stuck", "n1"),),
            (trouble("stuck", "n0"),),
            "n0",
            "connections between n0 and n1 open, but large packets",
            "mtu 1500",
        ),
        ((), (), None, "; data gets through between them", "has a receive"),
    ],
)
def test_links_that_were_tried_say_which_of_them_is_broken(
    first: tuple[LinkTrouble, ...],
    second: tuple[LinkTrouble, ...],
    node: str | None,
    says: str,
    fix: str,
) -> None:
    found = diagnose([tried(part(0, WAITS), first), tried(part(1, WAITS), second)])
    assert found is not None
    assert found.node == node
    assert says in found.summary
    assert fix in found.fix


def tried(one: PartStatus, links: tuple[LinkTrouble, ...]) -> PartStatus:
    assert one.stall is not None
    stall = msgspec.structs.replace(one.stall, links=links)
    return msgspec.structs.replace(one, stall=stall)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part(0), part(1)],
        [part(0), part(1, "busy")],  # another node gets on
        [part(0, "busy", state="failed"), part(1)],
        [part(0, "stopped", state="stopping")],
        [part(0, state="unknown"), part(1, state="unknown")],
    ],
)
def test_a_job_of_which_a_part_gets_on_is_not_stalled(parts: list[PartStatus]) -> None:
    assert diagnose(parts) is None


def test_it_has_stalled_since_the_first_of_its_parts_did() -> None:
    found = diagnose([part(0, WAITS, since_s=7.0), part(1, WAITS, since_s=6.0)])
    assert found is not None
    assert found.since_s == 6.0
