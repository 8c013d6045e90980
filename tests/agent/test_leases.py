from __future__ import annotations

import socket

import pytest

from jupyter_mntrain.agent.leases import LeaseBook
from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.ids import JobId

ONE, TWO = JobId("j-00000001"), JobId("j-00000002")


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
    assert str(refusal.value).startswith(f"node1: GPU 1 is promised to job {ONE}. Fix: ")
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
        with pytest.raises(RefusedError) as refusal:
            grant(book, hold_port=port)
    assert f"port {port} on 127.0.0.1 is taken by python" in str(refusal.value)
    assert list(book.all()) == []


def test_release_frees_the_port_and_may_be_repeated(book):
    port = grant(book, hold_port=0).port
    book.release(ONE, 1)
    book.release(ONE, 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
