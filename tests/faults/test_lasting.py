"""Fault table, continued: what torch waits through, and what costs a node everything."""

from __future__ import annotations

import sys
import time

import pytest

from tests.faults.bench import Bench
from tests.faults.lasting import STALLS, Stalls, report_stall
from tests.faults.limits import LOST_WITHIN_S, PATIENCE_S
from tests.faults.table import Outcome, report
from tests.netlab import DATA, MANAGEMENT
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


@pytest.mark.parametrize("row", STALLS, ids=lambda row: row.fault)
def test_what_torch_waits_through_is_named_and_goes_on_when_it_is_mended(
    bench: Bench, row: Stalls
) -> None:
    with bench.left_running():
        since_s = time.time()
        with row.do(bench):
            took_s, seen = bench.first_time(
                since_s,
                lambda o: o.get("job") == bench.job and o["stall_kind"] == row.kind,
                PATIENCE_S,
            )
            assert seen["state"] == "running"
            report_stall(row, took_s, seen)
            if row.is_typed:
                bench.types(seen["stall_fix"])
        bench.goes_on()
        until(lambda: bench.latest["stall"] is None, "that to be known", PATIENCE_S)
        assert bench.latest["state"] == "running"


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


def test_another_machine_with_the_address_of_a_node_is_named_and_its_fix_helps(
    bench: Bench,
) -> None:
    address = bench.second.data_address
    announce = [sys.executable, "-c", ANNOUNCES, DATA, address]
    with bench.left_running():
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
    with bench.left_running(bench.launch_and_step):
        bench.goes_on()  # the fix helps


# The last: it costs the host everything


def test_a_node_that_loses_power_is_lost_in_seconds_and_named(bench: Bench) -> None:
    with bench.left_running():
        since_s = time.time()
        # Nothing leaves a machine without power: no goodbye, and no reset of a connection either.
        for interface in (DATA, MANAGEMENT):
            bench.lab.set_port(bench.second, interface, is_up=False)
        bench.second.power_cut()
        lost_s, _ = bench.first_time(
            since_s, lambda o: o.get("name") == "node2" and o["liveness"] == "lost", PATIENCE_S
        )
        assert lost_s <= LOST_WITHIN_S
        took_s, stalled = bench.first_time(
            since_s,
            lambda o: (
                o.get("job") == bench.job
                and (o.get("stall_kind"), o.get("stall_node")) == ("node-lost", "node2")
            ),
            PATIENCE_S,
        )
        alone = "nothing until TCP times out, or for 30 minutes"
        said = Outcome("a node loses power", took_s, stalled["stall"], stalled["stall_fix"], alone)
        report(said, 20)
        for interface in (DATA, MANAGEMENT):
            bench.lab.set_port(bench.second, interface, is_up=True)
        bench.second.power_on()
        bench.restart_agent(bench.second)
        until(lambda: bench.latest.get("state") == "failed", "it to be known that it is over")
        assert bench.latest["cause_node"] == "node2"
        bench.nothing_is_left()
