"""What the kernel counts, of made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.links.paths import (
    dropped_packets,
    half_open,
    kept_packets,
    port_range,
)

SNMP = """Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams \
InUnknownProtos InDiscards InDelivers OutRequests ReasmReqds ReasmOKs
Ip: 1 64 1000 1 2 300 4 5 600 900 30 10
Icmp: InMsgs InErrors
Icmp: 7 0
"""
NETSTAT = """TcpExt: SyncookiesSent TCPRetransFail TCPTimeouts
TcpExt: 0 3 9
IpExt: InNoRoutes InTruncatedPkts
IpExt: 0 0
"""
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0502A8C0:A111 0302A8C0:9C40 03 00000000:00000000 01:00000060 00000001     0
   1: 0502A8C0:A111 0402A8C0:9C41 01 00000000:00000000 00:00000000 00000000     0
   2: 0502A8C0:0016 0702A8C0:9C42 03 00000000:00000000 01:00000060 00000001     0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "snmp").write_text(SNMP)
    (tmp_path / "net" / "netstat").write_text(NETSTAT)
    (tmp_path / "net" / "tcp").write_text(TCP)
    (tmp_path / "sys/net/ipv4").mkdir(parents=True)
    (tmp_path / "sys/net/ipv4/ip_local_port_range").write_text("32768\t60999\n")
    return tmp_path


def test_dropped_is_what_arrived_and_became_nothing_else(proc: Path) -> None:
    assert dropped_packets(proc) == 1000 - 600 - 20 - 1 - 2 - 300 - 4 - 5


def test_kept_is_what_could_not_be_sent_again(proc: Path) -> None:
    assert kept_packets(proc) == 3


def test_half_open_are_those_of_the_ports_that_were_asked_for(proc: Path) -> None:
    assert half_open(frozenset({0xA111, 0xA112}), proc) == ("192.168.2.3",)


def test_the_range_is_that_of_the_kernel(proc: Path) -> None:
    assert port_range(proc) == (32768, 60999)


def test_a_kernel_that_tells_nothing_counts_nothing(tmp_path: Path) -> None:
    assert (dropped_packets(tmp_path), kept_packets(tmp_path)) == (0, 0)
    assert half_open(frozenset({1}), tmp_path) == ()
    assert port_range(tmp_path) is None
