"""Connecting: whether ranks have connected to each other, by what the kernel lists."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from jupyter_mntrain.agent.warnings.connecting import (
    INTERVAL_S,
    LEAST_LOOKS,
    PATIENCE_S,
    Address,
    Connection,
    ConnectionWatch,
    connections_of,
    torchrun_below,
)
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import RankJoined
from jupyter_mntrain.model.records.job import Attempt, Placement, RankStatus
from tests.waiting import until

STORE = ("10.0.0.1", 29400)
OWN, OTHER = "10.0.0.1", "10.0.0.2"


def place(number: int, nproc: int) -> Placement:
    address = (OWN, OTHER)[number]
    return Placement(
        node_id=NodeId(f"{number}" * 32),
        node=f"node{number + 1}",
        node_rank=number,
        first_rank=Rank(number * nproc),
        nproc=nproc,
        gpus=(),
        interface="eth0",
        address=address,
        agent=(f"{address}:8765",),
    )


class Node:
    """One node, its ranks' connections and a clock."""

    def __init__(self, nodes: int = 2, nproc: int = 1, log: Path = Path("no log")) -> None:
        places = tuple(place(n, nproc) for n in range(nodes))
        self.now_s = 0.0
        self.connections: dict[int, list[Connection] | None] = {}
        self.ranks = [RankStatus(rank=Rank(n), state="running", pid=100 + n) for n in range(nproc)]
        attempt = Attempt(
            number=1,
            placements=places,
            master_address=STORE[0],
            master_port=STORE[1],
            submitted_s=0.0,
        )
        read = self.connections.get
        self.meeting = ConnectionWatch(
            attempt, places[0], log, lambda pid: read(pid, []), clock=lambda: self.now_s
        )

    def opens(self, rank: int, peer: Address, own: Address = (OWN, 40_000)) -> None:
        self.connections[100 + rank] = [Connection(own, peer)]

    def looks(self, times: int = LEAST_LOOKS) -> list[RankJoined]:
        found: list[RankJoined] = []
        for _ in range(times):
            found += self.meeting.look(self.ranks)
            self.now_s += INTERVAL_S
        return found


def size(events: list[RankJoined]) -> dict[int, int]:
    return {event.rank: event.size for event in events}


@pytest.mark.parametrize("peer", [STORE, (OTHER, 51_234)], ids=["the store", "another node"])
def test_who_connects_has_met_the_others(peer: Address) -> None:
    node = Node()
    node.opens(0, peer)
    assert size(node.looks(1)) == {0: 2}


def test_ranks_of_one_node_meet_each_other() -> None:
    node = Node(nodes=1, nproc=2)
    node.opens(0, ("127.0.0.1", 5000), own=("127.0.0.1", 4000))
    node.opens(1, ("127.0.0.1", 4000), own=("127.0.0.1", 5000))
    assert size(node.looks(1)) == {0: 2, 1: 2}


def test_who_connects_elsewhere_has_met_nobody() -> None:
    node = Node()
    node.opens(0, ("93.184.216.34", 443))
    assert node.looks() == []
    assert size([*node.meeting.end(node.ranks)]) == {0: 0}


def test_a_short_program_is_not_judged() -> None:
    node = Node()
    assert node.looks(LEAST_LOOKS - 1) == []
    assert [*node.meeting.end(node.ranks)] == []


@pytest.mark.parametrize(("count", "sizes"), [(2, {}), (1, {0: 0})])
def test_ranks_that_printed_that_they_have_met_have(
    count: int, sizes: dict[int, int], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    said = f"All distributed processes registered. Starting with {count} processes"
    log.write_text(f"[default rank 0] {said}\n")
    node = Node(log=log)
    assert size(node.looks(int(PATIENCE_S / INTERVAL_S) + 1)) == sizes
    assert size([*node.meeting.end(node.ranks)]) == sizes


def test_a_process_that_cannot_be_read_is_not_judged() -> None:
    node = Node()
    node.connections[100] = None
    assert node.looks(int(PATIENCE_S / INTERVAL_S) + 2) == []
    assert [*node.meeting.end(node.ranks)] == []


def test_a_long_run_is_judged_before_its_end_and_judged_anew_when_they_meet() -> None:
    node = Node()
    found = node.looks(int(PATIENCE_S / INTERVAL_S) + 1)
    assert size(found) == {0: 0}
    node.ranks = [RankStatus(rank=Rank(0), state="running", pid=100, group_size=0)]
    node.opens(0, STORE)
    assert size(node.looks(1)) == {0: 2}


def test_a_torchrun_below_a_rank_is_seen(tmp_path: Path) -> None:
    sleeps = tmp_path / "sleeps"
    sleeps.write_text("import time; time.sleep(600)")
    # A process with the words of torchrun, below one that a rank would be.
    words = [sys.executable, str(sleeps), "torchrun", "--nnodes", "1", "child.py", "--lr", "1"]
    inner = f"import subprocess; subprocess.run({words!r})"
    with subprocess.Popen([sys.executable, "-c", inner]) as rank:
        try:
            until(lambda: torchrun_below(rank.pid) == "child.py", "it to be seen")
            node = Node()
            node.ranks = [RankStatus(rank=Rank(0), state="running", pid=rank.pid)]
            node.looks()
        finally:
            for process in psutil.Process(rank.pid).children(recursive=True):
                process.kill()
    (joined,) = node.meeting.end(node.ranks)
    assert (joined.size, joined.own_torchrun) == (0, "child.py")
    assert torchrun_below(rank.pid) == ""


def test_who_tells_of_its_group_is_not_looked_at() -> None:
    node = Node()
    node.ranks = [RankStatus(rank=Rank(0), state="running", pid=100, group_size=2)]
    node.connections = {}
    node.meeting._read = lambda _pid: pytest.fail("looked")
    assert node.looks() == []


def test_a_job_of_one_rank_has_nobody_to_meet() -> None:
    node = Node(nodes=1)
    assert node.looks() == []
    assert [*node.meeting.end(node.ranks)] == []


@pytest.fixture
def connected() -> Iterator[tuple[Address, Address]]:
    with ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = held.enter_context(socket.create_connection(server.getsockname()))
        held.enter_context(server.accept()[0])
        yield client.getsockname(), server.getsockname()


def test_the_kernel_lists_the_connections_of_a_process(
    connected: tuple[Address, Address],
) -> None:
    found = connections_of(os.getpid())
    assert found is not None
    assert Connection(*connected) in found


def test_a_process_that_is_gone_has_no_list() -> None:
    assert connections_of(2**22 + 1) is None
