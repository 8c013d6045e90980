"""Fault table, continued: faults around a job, of ports, clocks, names and versions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from tests.faults.bench import Bench
from tests.faults.limits import BOTH, PATIENCE_S, STARTED_WITHIN_S
from tests.faults.table import Outcome, note, report
from tests.netlab import DATA, Host
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

CLOCK = Path(__file__).parents[1] / "netlab" / "clock.c"

# Ports

THIEF = """
import os, socket, sys
words = sys.orig_argv
if "--node-rank=0" in words and os.environ.get("MNTRAIN_ATTEMPT") == "1":
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--master"))
    sys.stolen = socket.socket()
    sys.stolen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sys.stolen.bind((options["master-addr"], int(options["master-port"])))
    sys.stolen.listen()
"""


def test_a_port_that_is_stolen_between_lease_and_start_costs_an_attempt(bench: Bench) -> None:
    folder = bench.first.home / "thief"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(THIEF)
    with bench.cleaned_up():
        since_s = time.time()
        words = ("--restarts", "1", "--env", f"PYTHONPATH={folder}")
        bench.launch(*BOTH, *words)
        took_s, seen = bench.first_time(
            since_s, lambda o: o.get("cause_kind") == "port-taken", PATIENCE_S
        )
        assert seen["cause_node"] == "node1"
        assert says("another program uses it: launch again", seen["cause_fix"])
        report(
            Outcome(
                "another program takes the port between lease and start",
                took_s,
                seen["cause"],
                seen["cause_fix"],
                "one node fails, the others wait 10 minutes for it",
            ),
            STARTED_WITHIN_S,
        )
        until(lambda: bench.has_stepped(bench.second), "the second attempt to run", PATIENCE_S)
        assert bench.latest["attempt"] == 2


# Clocks and names


JUMPS_S = (3600, -3600)
ELSEWHERE = "192.168.77.1/24"


def test_clocks_that_jump_and_another_address_change_nothing_of_any_attempt(
    bench: Bench, tmp_path: Path
) -> None:
    """node2's clock jumps in each of two attempts, and then its rank is killed; node1 has another
    address on its data network, before the one that the nodes share.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler. Fix: apt-get install gcc libc6-dev")
    library, ahead = tmp_path / "clock.so", tmp_path / "ahead"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    ahead.write_text("0")
    preloaded = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(ahead)}
    with (
        bench.cleaned_up(),
        elsewhere_first(bench, bench.first),
        bench.agent_with(bench.second, **preloaded),
    ):
        # LD_PRELOAD, on one alone
        bench.launch_and_step("--restarts", str(len(JUMPS_S)), finds=["node"])
        for attempt, jump_s in enumerate(JUMPS_S, 1):
            assert master(bench) == bench.first.data_address
            ahead.write_text(str(jump_s))
            bench.goes_on(50)
            assert bench.node(bench.second)["liveness"] == "up"
            assert (bench.latest["state"], bench.latest["attempt"]) == ("running", attempt)
            assert bench.latest["stall"] is None
            kill_and_be_named(bench)
            until(
                lambda attempt=attempt: (
                    (bench.latest["attempt"], bench.latest["state"]) == (attempt + 1, "running")
                ),
                "the next attempt",
                PATIENCE_S,
            )
            bench.goes_on()
        assert master(bench) == bench.first.data_address
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end", PATIENCE_S)
        bench.nothing_is_left()
    said = "nothing: steps, heartbeats, restart and the order of causes are unaffected"
    for jump_s in JUMPS_S:
        note(
            Outcome(
                f"a node's clock jumps by {jump_s / 3600:+.0f} h",
                None,
                said,
                "",
                "logs in the wrong order",
            )
        )


def kill_and_be_named(bench: Bench) -> None:
    """Who was first is known, although the guilty node's clock says otherwise."""
    since_s = time.time()
    bench.signal(bench.rank(bench.second), signal.SIGKILL)
    _, seen = bench.first_time(
        since_s,
        lambda o: (
            o.get("job") == bench.job and (o["cause_kind"], o.get("cause_rank")) == ("killed", 1)
        ),
        PATIENCE_S,
    )
    assert seen["cause_node"] == "node2"
    assert abs(seen["cause_time_s"] - since_s) < 30


@contextmanager
def elsewhere_first(bench: Bench, host: Host) -> Iterator[None]:
    """The host has another address on its data network, before that of the lab."""
    own = f"{host.data_address}/24"
    for words in (("add", ELSEWHERE), ("del", own), ("add", own)):
        host.run(["ip", "address", *words, "dev", DATA])
    try:
        until(
            lambda: bench.node(host)["addresses"][DATA] == [ELSEWHERE, own],
            "both addresses to be known",
        )
        yield
    finally:
        host.run(["ip", "address", "del", ELSEWHERE, "dev", DATA])


def master(bench: Bench) -> str:
    return environment_of(bench.rank(bench.first))["MASTER_ADDR"]


def test_a_slow_network_is_taken_if_it_is_named_and_a_silent_name_server_costs_no_job(
    bench: Bench,
) -> None:
    files = [Path("/etc/netns") / host.namespace / "resolv.conf" for host in bench.lab.hosts[:2]]
    before = [path.read_text() for path in files]
    try:
        for path in files:
            path.write_text("nameserver 10.77.1.250\n")
        with bench.cleaned_up():
            # A launch does not wait for it: the ranks do.
            assert sorted(bench.doctor()) == [("reverse-dns", "node1"), ("reverse-dns", "node2")]
            since_s = time.time()
            members = ("--member", "node1:1:eth0", "--member", "node2:1:eth0")
            (warning,) = bench.launch(*members, finds=["slow-link"])["warnings"]
            assert says("the ranks use eth0 (100", warning["cause"])
            assert says("these nodes also share eth1 (1", warning["cause"])
            assert says("omit the interface to use eth1", warning["fix"])
            report(
                Outcome(
                    "the slow management network is chosen",
                    0.0,
                    warning["cause"],
                    warning["fix"],
                    "a slow job",
                ),
                0.0,
            )
            until(lambda: bench.has_stepped(bench.first), "the first steps", PATIENCE_S)
            took_s = time.time() - since_s
            assert took_s <= STARTED_WITHIN_S
            bench.run("stop", bench.job)
            until(lambda: bench.latest["state"] == "canceled", "the end", PATIENCE_S)
            bench.nothing_is_left()
    finally:
        for path, text in zip(files, before, strict=True):
            path.write_text(text)
    said = f"nothing: the first step comes {took_s:.0f} s after the launch, timeouts included"
    alone = "6 s per rendezvous; fails if its endpoint is a host name"
    note(Outcome("the name server does not answer", None, said, "", alone))


# Versions


def test_a_node_with_another_torch_is_refused_before_anything_runs(bench: Bench) -> None:
    other = bench.second.home / "other" / "torch-2.9.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    path = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    with bench.cleaned_up(), bench.agent_with(bench.second, PYTHONPATH=path):
        problem = bench.launch(*BOTH, code=2)
        assert problem["kind"] == "mixed-versions"
        assert "2.9.1" in problem["cause"]
        assert "node2" in problem["cause"]
        assert says("--mixed-versions", problem["fix"])
        report(
            Outcome(
                "a node has another version of torch",
                0.0,
                problem["cause"],
                problem["fix"],
                "works or hangs, unpredictably",
            ),
            0.0,
        )
