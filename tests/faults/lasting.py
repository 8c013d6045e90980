"""Lasting faults: what torch waits through until it is mended, and what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from tests.faults.bench import Bench
from tests.faults.table import Outcome, report
from tests.netlab import DATA
from tests.wording import reads


class Stalls(NamedTuple):
    """A fault that torch waits through, and what is said of it.

    Args:
        is_typed: the fix's command alone mends it.
        refused_as: kind by which the doctor refuses a launch into it.
    """

    fault: str
    do: Callable[[Bench], AbstractContextManager[object]]
    kind: str
    fix: str
    within_s: float
    alone: str
    node: str | None = "node2"
    rank: int | None = None
    is_typed: bool = False
    refused_as: str = ""


def report_stall(row: Stalls, took_s: float, seen: dict[str, Any]) -> None:
    assert row.node in (None, seen["stall_node"])
    assert seen["stall_rank"] == row.rank
    assert reads(row.fix, seen["stall_fix"])
    said = Outcome(row.fault, took_s, seen["stall"], seen["stall_fix"], row.alone)
    report(said, row.within_s)


@contextmanager
def frozen(bench: Bench) -> Iterator[None]:
    pid = bench.rank(bench.second)
    bench.signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        bench.signal(pid, signal.SIGCONT)


@contextmanager
def busy(bench: Bench) -> Iterator[None]:
    go_on = bench.second.home / "go-on"
    go_on.unlink(missing_ok=True)
    code = f"""
def load_shard():
    while not os.path.exists({str(go_on)!r}):
        pass
load_shard()
"""
    bench.inject(bench.second, code)
    yield
    go_on.touch()


@contextmanager
def interface_down(bench: Bench) -> Iterator[None]:
    bench.second.set_link(DATA, is_up=False)
    try:
        yield
    finally:
        bench.second.set_link(DATA, is_up=True)


@contextmanager
def port_down(bench: Bench) -> Iterator[None]:
    bench.lab.set_port(bench.second, DATA, is_up=False)
    try:
        yield
    finally:
        bench.lab.set_port(bench.second, DATA, is_up=True)


@contextmanager
def partition(bench: Bench) -> Iterator[None]:
    with bench.second.firewall("INPUT", "-i", DATA, "-s", bench.first.data_address, "-j", "DROP"):
        yield


STALLS = [
    Stalls(
        "rank gets SIGSTOP",
        frozen,
        "stopped",
        r"kill -CONT \d+",
        20,
        "nothing for 30 minutes, then 'timed out waiting for recv' on the others",
        rank=1,
        is_typed=True,
    ),
    Stalls(
        "rank is stuck in its own code",
        busy,
        "busy",
        "that rank's stack",
        20,
        "nothing for 30 minutes",
        rank=1,
    ),
    Stalls(
        "the training interface goes down on a node",
        interface_down,
        "link-down",
        r"ip link set eth1 up",
        20,
        "nothing for 30 minutes, then a timeout on every node",
        is_typed=True,
    ),
    Stalls(
        "the switch's port goes down",
        port_down,
        "link-down",
        r"its cable and its switch port",
        20,
        "nothing for 30 minutes, then a timeout on every node",
    ),
    Stalls(
        "two nodes are cut off from each other",
        partition,
        "link-blocked",
        r"switch and the firewalls",
        25,
        "nothing for 30 minutes, then a timeout on both",
        node=None,  # either: both are cut off
    ),
]
