"""Dialing: as Gloo chooses by addresses, and NCCL does both ways; what that makes of a firewall."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.doctor.check import Case, PendingJob
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.doctor.pair import is_dialed
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.paths import PathTrial, PortTry
from tests.doctor.healthy import healthy
from tests.doctor.paths import HIGH, RENDEZVOUS, blocked


@pytest.mark.parametrize(
    ("source", "address", "head", "gloo"),
    [
        ("10.0.0.2", "10.0.0.1", "other", True),
        ("10.0.0.1", "10.0.0.2", "other", False),
        ("10.0.0.1", "10.0.0.2", "peer", True),
        ("10.0.0.9", "10.0.0.10", "other", False),  # as numbers, not as text
    ],
)
def test_who_connects_to_whom(source: str, address: str, head: str, gloo: bool):
    way = PathTrial(
        node="node",
        peer="peer",
        interface="eth0",
        source=source,
        address=address,
        tries=(PortTry(port=1024),),
    )
    assert is_dialed(Case(nodes=(), job=PendingJob(head=head, is_gloo=True)), way) is gloo
    assert is_dialed(Case(nodes=(), job=PendingJob(head=head)), way)
    assert is_dialed(Case(nodes=()), way)


def found(case: Case, job: PendingJob | None) -> list[tuple[str, str, Kind]]:
    """Level, check and kind of all that is wrong."""
    return [
        (one.level, one.check, one.problem.kind)
        for one in examine(msgspec.structs.replace(case, job=job))
        if one.problem is not None
    ]


GLOO, NCCL = PendingJob(head="wopr", is_gloo=True), PendingJob(head="wopr")


@pytest.mark.parametrize(("job", "level"), [(GLOO, "slows"), (NCCL, "stops"), (None, "stops")])
def test_a_firewall_on_a_way_that_nobody_dials_stops_nothing(job: PendingJob | None, level: str):
    case = blocked(healthy(), "muthur", "hal")
    assert found(case, job) == [(level, "reachable", Kind.ONE_WAY_LINK)]


@pytest.mark.parametrize(("job", "level"), [(GLOO, "slows"), (NCCL, "stops"), (None, "stops")])
def test_nor_does_one_on_a_part_of_the_ports(job: PendingJob | None, level: str):
    case = blocked(healthy(), "muthur", "hal", ports=(HIGH,))
    assert found(case, job) == [(level, "port-range", Kind.PORT_BLOCKED)]


def test_both_ways_are_more_than_one():
    case = blocked(blocked(healthy(), "muthur", "hal"), "hal", "muthur")
    assert {kind for _, _, kind in found(case, None)} == {Kind.LINK_BLOCKED}


@pytest.mark.parametrize(("peer", "levels"), [("wopr", ["stops"]), ("hal", [])])
def test_of_a_jobs_own_port_only_the_heads_counts(peer: str, levels: list[str]):
    case = blocked(healthy(), "muthur", peer, ports=(RENDEZVOUS,))
    job = PendingJob(head="wopr", is_gloo=True, port=RENDEZVOUS)
    assert [level for level, _, _ in found(case, job)] == levels
