"""Fault table: each fault on simulated hosts, with what a driver is told and when."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from jupyter_mntrain.model.errors import RefusedError
from tests.faults.bench import IS_LONG, Bench
from tests.faults.lasting import Stalls, report_stall
from tests.faults.limits import PATIENCE_S
from tests.faults.table import Outcome, report
from tests.netlab import DATA, Host
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

PORT = 29555


class Fails(NamedTuple):
    """A fault that ends a job: who is to blame, and by when, far later than measured, that is
    known.
    """

    fault: str
    do: Callable[[Bench], object]
    kind: str
    within_s: float
    alone: str
    node: str = "node2"
    rank: int | None = 1
    is_proved_by: str = ""
    """Another test of the short form."""


def raising(what: str) -> Callable[[Bench], None]:
    return lambda bench: bench.inject(bench.second, what)


def on_second(
    which: Callable[[Bench, Host], int], number: signal.Signals
) -> Callable[[Bench], None]:
    return lambda bench: bench.signal(which(bench, bench.second), number)


# A rank's end takes torchrun 0.1 s to see and a second or two to tell; the rest is this machine's.
FAILS = [
    Fails(
        "rank gets SIGTERM",
        on_second(Bench.rank, signal.SIGTERM),
        "terminated",
        10,
        "all nodes end in 1 to 2 s; the others say only 'connection closed by peer'",
    ),
    Fails(
        "rank gets SIGKILL, as by the kernel when memory runs out",
        on_second(Bench.rank, signal.SIGKILL),
        "killed",
        10,
        "all nodes end in 2 s; the others say only 'connection closed by peer'",
        is_proved_by="tests/faults/test_surroundings.py, of clocks that jump",
    ),
    Fails(
        "rank raises an exception",
        raising("raise ValueError('the label is no number')"),
        "exception",
        10,
        "a traceback on that node, 'connection closed by peer' on the others",
        is_proved_by="tests/agent/gang/test_verdicts.py",
    ),
    Fails(
        "rank runs out of GPU memory",
        raising(
            "import torch; raise torch.OutOfMemoryError('CUDA out of memory. "
            "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB')"
        ),
        "gpu-out-of-memory",
        10,
        "a traceback on that node, 'connection closed by peer' on the others",
    ),
    Fails(
        "rank ends early with exit code 0",
        raising("raise SystemExit(0)"),
        "ended-early",
        10,
        "'connection closed by peer' on the others; that node waits 5 minutes for them",
        is_proved_by="tests/agent/gang/test_verdicts.py",
    ),
    Fails(
        "torchrun gets SIGKILL",
        on_second(Bench.torchrun, signal.SIGKILL),
        "killed",
        10,
        "its rank keeps running as an orphan, unnoticed",
        rank=None,
    ),
    Fails(
        "the attempt's supervisor gets SIGKILL",
        on_second(Bench.supervisor, signal.SIGKILL),
        "supervisor-lost",
        10,
        "torchrun has no supervisor",
        rank=None,
    ),
]


SHORT = [row for row in FAILS if IS_LONG or not row.is_proved_by]


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.fault)
def test_what_ends_a_job_is_named(bench: Bench, row: Fails) -> None:
    with bench.cleaned_up():
        bench.launch_and_step()
        since_s = time.time()
        row.do(bench)
        took_s, seen = bench.first_time(
            since_s,
            lambda o: o.get("job") == bench.job and o["cause_kind"] == row.kind,
            PATIENCE_S,
        )
        assert (seen["cause_node"], seen["cause_rank"]) == (row.node, row.rank)
        assert seen["cause_fix"]
        said = Outcome(row.fault, took_s, seen["cause"], seen["cause_fix"], row.alone)
        report(said, row.within_s)
        until(lambda: bench.latest["state"] == "failed", "it to fail", PATIENCE_S)
        assert bench.latest["cause_kind"] == row.kind
        # What followed on other nodes is not the cause.
        assert (bench.latest["cause_node"], bench.latest["cause_rank"]) == (row.node, row.rank)
        bench.nothing_is_left()


# What keeps a job from its first step


@contextmanager
def one_way_firewall(bench: Bench) -> Iterator[None]:
    """Of the node that the other one's Gloo dials; the other way round it would do no harm."""
    rule = ("-i", DATA, "-p", "tcp", "--syn", "!", "--dport", str(PORT), "-j", "DROP")
    with bench.first.firewall("INPUT", *rule):
        yield


@contextmanager
def wrong_mtu(bench: Bench) -> Iterator[None]:
    # A bridge lets through what is sent as one and cut into packets later, however large they are.
    for host in (bench.first, bench.second):
        host.change_link(DATA, "mtu", "9000", "gso_max_segs", "1")
    try:
        yield
    finally:
        for host in (bench.first, bench.second):
            host.change_link(DATA, "mtu", "1500", "gso_max_segs", "65535")


STARTS = [
    Stalls(
        "a node's firewall admits only the rendezvous port",
        one_way_firewall,
        "one-way-link",
        r"let node2 connect to node1",
        60,
        "hangs in init_process_group or at the first send",
        node="node1",
        refused_as="one-way-link",
    ),
    Stalls(
        "two nodes use a larger MTU than the switch",
        wrong_mtu,
        "mtu-too-large",
        r"mtu 1500",
        60,
        "connects, then hangs at the first megabyte",
        node=None,  # either: both have it
        refused_as="mtu-too-large",
    ),
]


@pytest.mark.parametrize("row", STARTS, ids=lambda row: row.fault)
def test_what_keeps_a_job_from_its_first_step_is_named(bench: Bench, row: Stalls) -> None:
    with bench.cleaned_up(), row.do(bench):
        since_s = time.time()
        words = ("--member", "node1:1:eth1", "--member", "node2:1:eth1", "--port", str(PORT))
        refused = bench.launch(*words, code=RefusedError.exit_code)
        assert refused["kind"] == row.refused_as
        bench.launch(*words, "--skip-doctor")
        took_s, seen = bench.first_time(
            since_s,
            lambda o: o.get("job") == bench.job and o["stall_kind"] == row.kind,
            3 * PATIENCE_S,
        )
        report_stall(row, took_s, seen)
