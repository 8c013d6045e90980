"""Trials of ways on this machine's loopback addresses: a listener, and who tries it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from jupyter_mntrain.agent.machine.links import paths
from jupyter_mntrain.agent.machine.links.paths import PathListeners, try_paths
from jupyter_mntrain.agent.machine.ports import PortHolder
from jupyter_mntrain.model.errors import PortTakenError, RefusedError
from jupyter_mntrain.model.records.doctor.paths import (
    PathHeard,
    PathListen,
    PathsAsked,
    PathTarget,
    PathTicket,
    PathTrial,
)
from tests.agent.live import free_port
from tests.waiting import until

HERE, THERE = "127.0.0.4", "127.0.0.5"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_mntrain.agent.machine.links.paths.LOAD_S", 0.05)


@pytest.fixture
def listeners() -> Iterator[PathListeners]:
    made = PathListeners()
    yield made
    for token in list(made._open):
        made.end(token)


def tried(ticket: PathTicket, *, may_load: bool = True, source: str = HERE) -> PathTrial:
    target = PathTarget(peer="hal", interface="lo", source=source, address=THERE, ticket=ticket)
    (found,) = try_paths(PathsAsked(targets=(target,)), "wopr", may_load=may_load)
    return found


def test_a_way_that_works_is_tried_in_every_respect(listeners: PathListeners) -> None:
    port = free_port(THERE)
    ticket = listeners.open(PathListen(address=THERE, ports=(port,)), "hal")
    found = tried(ticket)
    assert {one.trouble for one in found.tries} == {None}
    assert [one.port for one in found.tries] == [ticket.port, *ticket.ports]
    assert port in ticket.ports
    assert (found.node, found.peer, found.flow, found.leaves_by) == ("wopr", "hal", "works", "lo")
    assert found.path_mtu is not None
    assert found.path_mtu > 1500
    assert found.round_trip_s is not None
    assert 0 < found.round_trip_s < 1
    assert found.load is not None
    assert found.load.packets > 0
    assert (found.knocks, found.is_kept) == (0, False)


def test_beside_a_job_nothing_is_loaded(listeners: PathListeners) -> None:
    ticket = listeners.open(PathListen(address=THERE), "hal")
    assert tried(ticket, may_load=False).load is None


def test_ports_where_nobody_listens_refuse(listeners: PathListeners) -> None:
    ticket = listeners.open(PathListen(address=THERE), "hal")
    assert listeners.end(ticket.token).half_open == ()
    until(lambda: not listeners._open, "the listener to end")
    found = tried(ticket)
    assert {one.trouble for one in found.tries} == {"refused"}
    assert (found.flow, found.path_mtu) == (None, None)
    assert found.knocks > 0


def test_an_address_that_this_machine_lost_is_no_source(listeners: PathListeners) -> None:
    ticket = listeners.open(PathListen(address=THERE), "hal")
    assert tried(ticket, source="192.0.2.7").trouble == "no source"


def test_who_does_not_know_the_token_is_another_machine(listeners: PathListeners) -> None:
    ticket = listeners.open(PathListen(address=THERE), "hal")
    wrong = PathTicket(token="0" * 16, port=ticket.port)
    found = tried(wrong)
    assert (found.trouble, found.path_mtu) == ("another machine", None)


def test_a_port_that_is_held_for_a_job_is_not_listened_on(listeners: PathListeners) -> None:
    with closing(PortHolder.hold(THERE, 0, "hal")) as held:
        ticket = listeners.open(PathListen(address=THERE, ports=(held.port,)), "hal")
        assert held.port not in ticket.ports


def test_ports_are_free_again_at_the_end(listeners: PathListeners) -> None:
    port = free_port(THERE)
    ticket = listeners.open(PathListen(address=THERE, ports=(port,)), "hal")
    with pytest.raises(PortTakenError):
        PortHolder.hold(THERE, port, "hal")
    tried(ticket)
    listeners.end(ticket.token)
    PortHolder.hold(THERE, port, "hal").close()


def test_who_listens_ends_by_itself(
    listeners: PathListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LIFE_S", 0.1)
    ended: list[float] = []
    ticket = listeners.open(PathListen(address=THERE), "hal", lambda: ended.append(time.time()))
    until(lambda: bool(ended), "the listener to end")
    assert listeners.end(ticket.token) == PathHeard()


def test_an_address_of_another_machine_is_refused(listeners: PathListeners) -> None:
    for address in ("192.0.2.7", "::1", "hal"):
        with pytest.raises(RefusedError):
            listeners.open(PathListen(address=address), "hal")


def test_what_comes_without_the_token_gets_no_answer(listeners: PathListeners) -> None:
    ticket = listeners.open(PathListen(address=THERE), "hal")
    with socket.create_connection((THERE, ticket.port), 5.0) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionResetError):  # it had more to read when it closed
            assert connection.recv(100) == b""
