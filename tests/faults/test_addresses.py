"""Fault table, continued: two machines with one address, and one machine with two."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from tests.faults.bench import Bench
from tests.faults.limits import PATIENCE_S
from tests.faults.table import Outcome, report
from tests.netlab import DATA, Host
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

ANNOUNCES = """
import socket, sys
name, address = sys.argv[1:]
card = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
card.bind((name, 0x0806))
mac, own = card.getsockname()[4], socket.inet_aton(address)
everybody = b"\\xff" * 6
card.send(everybody + mac + bytes.fromhex("0806000108000604 0001") + mac + own + everybody + own)
"""
"""Tells the network, by ARP, that this machine has the address: as with every new address."""


ELSEWHERE = "192.168.77.1/24"


@contextmanager
def elsewhere_first(bench: Bench, host: Host) -> Iterator[None]:
    """The host has another address on its data network, before that of the lab."""
    own = f"{host.data_address}/24"
    for words in (("add", ELSEWHERE), ("del", own), ("add", own)):
        host.run(["ip", "address", *words, "dev", DATA])
    try:
        until(lambda: addresses(bench, host) == [ELSEWHERE, own], "both addresses to be known")
        yield
    finally:
        host.run(["ip", "address", "del", ELSEWHERE, "dev", DATA])


def addresses(bench: Bench, host: Host) -> list[str]:
    (node,) = (node for node in bench.run("nodes") if node["name"] == host.name)
    found = node["info"]["inventory"]["interfaces"]
    return next(list(one["addresses"]) for one in found if one["name"] == DATA)


def master(bench: Bench) -> str:
    return environment_of(bench.rank(bench.first))["MASTER_ADDR"]


def test_of_two_addresses_every_attempt_uses_the_one_that_nodes_share(bench: Bench) -> None:
    with bench.cleaned_up(), elsewhere_first(bench, bench.first):
        bench.launch_and_step("--restarts", "1")
        assert master(bench) == bench.first.data_address
        before = {bench.rank(bench.first), bench.rank(bench.second)}
        bench.signal(bench.rank(bench.second), signal.SIGKILL)
        until(lambda: has_restarted(bench, before), "another attempt", PATIENCE_S)
        assert master(bench) == bench.first.data_address
        bench.goes_on()


def has_restarted(bench: Bench, before: set[int]) -> bool:
    try:
        return before.isdisjoint({bench.rank(bench.first), bench.rank(bench.second)})
    except IndexError:  # none of its ranks runs
        return False


def test_another_machine_with_the_address_of_a_node_is_named_and_its_fix_helps(
    bench: Bench,
) -> None:
    address = bench.second.data_address
    announce = [sys.executable, "-c", ANNOUNCES, DATA, address]
    with bench.cleaned_up():
        bench.launch_and_step()
        since_s = time.time()
        bench.driver.run(["ip", "address", "add", f"{address}/32", "dev", DATA])
        try:
            assert bench.driver.run(announce).returncode == 0
            took_s, seen = bench.first_time(
                since_s,
                lambda o: (
                    o.get("job") == bench.job
                    and "duplicate-address" in (o["cause_kind"], o["stall_kind"])
                ),
                PATIENCE_S,
            )
        finally:
            # What the fix says: the other machine gets another address.
            bench.driver.run(["ip", "address", "del", f"{address}/32", "dev", DATA])
            assert bench.second.run(announce).returncode == 0
        which = "cause" if seen["cause_kind"] == "duplicate-address" else "stall"
        assert seen[f"{which}_node"] == "node2"
        mac = bench.driver.run(["cat", f"/sys/class/net/{DATA}/address"]).stdout.strip()
        assert mac in seen[which]
        assert mac in seen[f"{which}_fix"]
        assert says("give it another one", seen[f"{which}_fix"])
        report(
            Outcome(
                "another machine takes the address of a node",
                took_s,
                seen[which],
                seen[f"{which}_fix"],
                "'connection reset by peer' on one node, a timeout on the other",
            ),
            30,
        )
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] in ("failed", "canceled"), "its end", PATIENCE_S)
        bench.launch_and_step()
