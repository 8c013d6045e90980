from __future__ import annotations

import socket

import pytest

from jupyter_mntrain.agent.machine.condition import ConditionWatch
from jupyter_mntrain.agent.machine.probe import measure, open_sink
from jupyter_mntrain.model.api import ProbeSend, ProbeTicket
from jupyter_mntrain.model.errors import RefusedError
from tests.wording import says, wording


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.agent.machine.probe.WARM_UP_S", 0.02)


def idle() -> bool:
    return False


def request(ticket: ProbeTicket, **changes) -> ProbeSend:
    fields = {
        "interface": "lo",
        "source_address": "127.0.0.1",
        "address": "127.0.0.1",
        "port": ticket.port,
        "token": ticket.token,
        "peer": "node2",
        "seconds": 0.05,
    }
    return ProbeSend(**(fields | changes))


def test_a_link_is_measured_by_sending_over_it():
    ticket = open_sink("127.0.0.1", "node2", idle)
    link = measure(request(ticket), "node1", idle)
    assert link.capacity.bytes_per_s > 1e7  # loopback carries gigabytes
    assert (link.sender, link.receiver, link.interface) == ("node1", "node2", "lo")
    assert link.capacity.source == "measured"
    assert link.capacity.time_s > 0


@pytest.mark.parametrize("busy", ["node1", "node2"])
def test_a_job_on_either_node_marks_the_measurement(busy):
    ticket = open_sink("127.0.0.1", "node2", lambda: busy == "node2")
    link = measure(request(ticket), "node1", lambda: busy == "node1")
    assert link.capacity.condition == "beside a job"


def test_a_job_that_begins_while_a_link_is_measured_marks_it():
    began = iter([False, True])
    ticket = open_sink("127.0.0.1", "node2", idle)
    link = measure(request(ticket), "node1", lambda: next(began))
    assert link.capacity.condition == "beside a job"


@pytest.mark.parametrize(("waited_s", "condition"), [(0.0, "alone"), (60.0, "starved of CPU")])
def test_a_thread_that_waits_for_a_core_is_starved(tmp_path, monkeypatch, waited_s, condition):
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("10 1000 1\n")
    monkeypatch.setattr("jupyter_mntrain.agent.machine.condition.SCHEDSTAT", schedstat)
    watch = ConditionWatch(idle)
    schedstat.write_text(f"10 {1000 + int(waited_s * 1e9)} 1\n")
    assert watch.condition() == condition
    schedstat.unlink()
    assert ConditionWatch(idle).condition() == "alone", "a kernel that does not say"


def test_a_sink_is_for_one_sender_who_knows_the_token():
    ticket = open_sink("127.0.0.1", "node2", idle)
    with pytest.raises(RefusedError, match=wording(r"no data from 127\.0\.0\.1 \(lo\) to node2")):
        measure(request(ticket, token="0" * 16), "node1", idle)
    with pytest.raises(RefusedError, match=wording("no data")):
        measure(request(ticket), "node1", idle)


@pytest.mark.parametrize("port", [1, 10**6])
def test_nobody_there_is_told_with_both_ends(port):
    with pytest.raises(RefusedError) as refusal:
        measure(request(ProbeTicket(port=port, token="x")), "node1", idle)
    assert says("to node2 at 127.0.0.1", str(refusal.value))
    assert refusal.value.fix


def test_a_sink_on_an_address_of_another_machine_is_refused():
    with pytest.raises(RefusedError, match=wording(r"node1: cannot listen on 192\.0\.2\.1")):
        open_sink("192.0.2.1", "node1", idle)
    with pytest.raises(RefusedError, match=wording("cannot listen on nonsense")):
        open_sink("nonsense", "node1", idle)
    with pytest.raises(RefusedError):
        open_sink("\u202e", "node1", idle)


def test_the_sender_s_address_decides_the_interface():
    with socket.create_server(("127.0.0.1", 0)) as sink:
        ticket = ProbeTicket(port=sink.getsockname()[1], token="x")
        with pytest.raises(RefusedError):
            measure(request(ticket, source_address="192.0.2.1"), "node1", idle)
