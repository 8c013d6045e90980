from __future__ import annotations

import socket
from contextlib import ExitStack

import psutil
import pytest

from jupyter_mntrain.agent.jobs import leases
from jupyter_mntrain.agent.jobs.attempt_end import REMEMBERED_S, EarlyStops
from jupyter_mntrain.agent.jobs.leases import MAX_EXPIRY_S, LeaseBook
from jupyter_mntrain.agent.machine.ports import PortHolder
from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.errors import PortTakenError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from tests.agent.live import free_range
from tests.wording import says, wording

ONE, TWO, THREE = (JobId(f"j-0000000{number}") for number in (1, 2, 3))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(clock):
    book = LeaseBook(clock=clock)
    yield book
    for lease in list(book.all()):
        book.release(lease.job_id, lease.attempt)


def grant(book, job=ONE, **changes):
    request = LeaseRequest(job_id=job, attempt=1, ranks=1, **{"expires_in_s": 10.0, **changes})
    return book.grant(request, address="127.0.0.1", node="node1")


def test_a_gpu_is_promised_once_and_the_refusal_names_who_has_it(book):
    grant(book, gpus=(0, 1))
    with pytest.raises(RefusedError) as refusal:
        grant(book, TWO, gpus=(1, 2))
    assert refusal.value.kind is Kind.GPU_TAKEN
    assert (refusal.value.node, bool(refusal.value.fix)) == ("node1", True)
    assert says(f"node1: GPU 1 is leased to job {ONE}. Fix: ", str(refusal.value))
    grant(book, TWO, gpus=(2,))


def test_an_unstarted_lease_expires_and_frees_what_it_held(book, clock):
    grant(book, gpus=(0,))
    clock.now += 10.1
    grant(book, TWO, gpus=(0,))
    assert [lease.job_id for lease in book.all()] == [TWO]


def test_asking_again_renews_and_keeps_the_port(book, clock):
    port = grant(book, hold_port=0).port
    clock.now += 9
    assert grant(book, hold_port=0).port == port
    clock.now += 9
    assert book.expire() == []


def test_a_started_lease_does_not_expire(book, clock):
    grant(book, gpus=(0,))
    book.start(ONE, 1)
    clock.now += 1000
    assert book.expire() == []
    with pytest.raises(RefusedError):
        grant(book, TWO, gpus=(0,))


def test_an_expired_lease_cannot_be_started(book, clock):
    grant(book)
    clock.now += 11
    assert book.start(ONE, 1) is None


def test_nobody_else_gets_a_held_port_but_a_listener_with_reuseaddr(book):
    port = grant(book, hold_port=0).port
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as torchrun:
        torchrun.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        torchrun.bind(("127.0.0.1", port))
        torchrun.listen()


def test_a_taken_port_is_refused_naming_who_listens(book):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError) as refusal:
            grant(book, hold_port=port)
    assert says(
        f"port {port} on 127.0.0.1 is taken by {psutil.Process().name()}", str(refusal.value)
    )
    assert list(book.all()) == []


def test_a_port_that_another_address_uses_is_not_held(book):
    # torchrun's store listens on every address: it would fail, on a node that looked free.
    # One that nobody else has on any address of this machine.
    port = free_range("0.0.0.0", 1)
    with (
        socket.create_server(("127.0.0.2", 0)) as server,
        socket.create_connection(server.getsockname(), source_address=("127.0.0.3", port)),
        pytest.raises(PortTakenError, match=wording(f"is taken by {psutil.Process().name()}")),
    ):
        grant(book, hold_port=port)


def test_the_kernel_chooses_none_that_another_address_uses(book):
    with socket.create_server(("127.0.0.2", 0), backlog=300) as server, ExitStack() as open_ones:
        here = server.getsockname()
        used = {
            open_ones.enter_context(socket.create_connection(here)).getsockname()[1]
            for _ in range(200)
        }
        held = [PortHolder.hold("127.0.0.1", 0, "node1") for _ in range(200)]
        ports = [holder.port for holder in held]
        for holder in held:
            holder.close()
    assert len(set(ports)) == len(ports)
    assert not used & set(ports)


def test_release_frees_the_port_and_may_be_repeated(book):
    port = grant(book, hold_port=0).port
    book.release(ONE, 1)
    book.release(ONE, 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_two_attempts_never_hold_the_same_port(book):
    # The kernel alone would allow it: neither of the two listens.
    port = grant(book, hold_port=0).port
    with pytest.raises(PortTakenError, match=wording(f"port {port} is leased to job {ONE}")):
        grant(book, TWO, hold_port=port)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_what_is_no_port_is_refused(book, port):
    with pytest.raises(RefusedError, match=wording("is not a valid port")):
        grant(book, hold_port=port)
    assert list(book.all()) == []


def test_an_address_of_another_machine_is_refused_in_its_own_words(book):
    request = LeaseRequest(job_id=ONE, attempt=1, ranks=1, hold_port=0)
    with pytest.raises(RefusedError, match=wording("cannot be used")) as refusal:
        book.grant(request, address="192.0.2.1", node="node1")
    assert not isinstance(refusal.value, PortTakenError)


@pytest.mark.parametrize("changes", [{"gpus": (1,)}, {"hold_port": None}, {"hold_port": 1}])
def test_asking_again_for_something_else_is_refused(book, changes):
    asked = {"gpus": (0,), "hold_port": 0}
    grant(book, **asked)
    with pytest.raises(RefusedError, match=wording("has a lease on other")):
        grant(book, **(asked | changes))


def test_nobody_promises_for_ever(book, clock):
    grant(book, gpus=(0,), expires_in_s=1e9)
    clock.now += MAX_EXPIRY_S + 1
    assert book.expire() == [(ONE, 1)]


def test_only_what_has_not_started_is_given_back(book):
    grant(book, gpus=(0,))
    grant(book, TWO, gpus=(1,))
    book.start(TWO, 1)
    book.release_unstarted(ONE)
    book.release_unstarted(TWO)
    assert [lease.job_id for lease in book.all()] == [TWO]


def test_a_stop_outlasts_every_request_that_was_on_its_way(clock):
    stops = EarlyStops(clock)
    stops.remember(ONE, 2)
    stops.remember(ONE, 1)
    assert [stops.includes(ONE, n) for n in (1, 2, 3)] == [True, True, False]
    assert not stops.includes(TWO, 1)
    stops.remember(TWO, None)
    assert stops.includes(TWO, 99)
    clock.now += REMEMBERED_S + 1
    assert not stops.includes(ONE, 1)


def test_ports_come_from_the_node_s_range_while_one_is_free(book, monkeypatch):
    first = free_range("0.0.0.0", 3)
    monkeypatch.setattr(leases, "PORTS", range(first, first + 3))
    with socket.create_server(("0.0.0.0", first + 1)):
        given = [grant(book, job, hold_port=0).port for job in (ONE, TWO)]
        assert given == [first, first + 2], "the one between is taken, and the first one leased"
        with pytest.raises(PortTakenError, match=wording(f"no port from {first} to {first + 2}")):
            grant(book, THREE, hold_port=0)
    assert grant(book, THREE, hold_port=0).port == first + 1
