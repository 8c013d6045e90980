from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from jupyter_mntrain.agent.machine.links import probe
from jupyter_mntrain.agent.machine.links.probe import (
    LEAST_QUEUED_BYTES,
    QUEUED_S,
    TCP_NOTSENT_LOWAT,
    Reading,
    _bound_queue,
    fill,
    measure,
    open_sink,
)
from jupyter_mntrain.agent.machine.links.turn import ConditionWatch
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.probes import LinkEnd, ProbeSend, ProbeTicket
from tests.wording import says, wording


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.agent.machine.links.probe.WARM_UP_S", 0.02)


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
        "echoes": ticket.echoes,
    }
    return ProbeSend(**(fields | changes))


def test_a_link_is_measured_by_sending_over_it():
    ticket = open_sink("127.0.0.1", "node2", idle)
    link = measure(request(ticket), "node1", idle)
    assert link.capacity.bytes_per_s > 1e7  # loopback carries gigabytes
    assert (link.sender, link.receiver, link.interface) == ("node1", "node2", "lo")
    assert link.capacity.source == "measured"
    assert link.capacity.time_s > 0


def test_round_trips_are_timed_before_the_link_is_filled():
    ticket = open_sink("127.0.0.1", "node2", idle)
    latency = measure(request(ticket), "node1", idle).latency
    assert latency is not None
    assert 0 < latency.median_s <= latency.p99_s < 1.0
    assert latency.count > 2


def test_a_sink_of_an_older_agent_times_no_round_trips():
    ticket = open_sink("127.0.0.1", "node2", idle)
    link = measure(request(ticket, echoes=False), "node1", idle)
    assert link.latency is None
    assert link.capacity.bytes_per_s > 1e7


def test_the_slowest_hundredth_is_not_the_median(monkeypatch):
    took_s = iter([9.0, *[0.002] * 98, 0.03, 0.04])
    monkeypatch.setattr(probe, "round_trip_s", lambda _: next(took_s))
    monkeypatch.setattr(probe, "MOST_TRIPS", 100)
    with socket.socket() as unused:
        latency = probe.measure_latency(unused)
    assert (latency.median_s, latency.p99_s, latency.count) == (0.001, 0.02, 100)


def test_several_connections_share_the_work_and_the_result_says_how_many():
    ticket = open_sink("127.0.0.1", "node2", idle, streams=4)
    end = LinkEnd(mtu=65536)
    asked = request(ticket, streams=4, receiver_end=LinkEnd(mtu=1500))
    link = measure(asked, "node1", idle, end)
    assert link.capacity.bytes_per_s > 1e7
    assert link.streams == 4
    assert link.ends == (end, LinkEnd(mtu=1500))
    assert link.latency is not None


def test_fewer_connections_than_agreed_are_refused(monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.agent.machine.links.probe.IO_TIMEOUT_S", 0.3)
    ticket = open_sink("127.0.0.1", "node2", idle, streams=2)
    with pytest.raises(RefusedError):
        measure(request(ticket), "node1", idle)


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


@pytest.mark.parametrize(("waited_s", "condition"), [(0.0, "alone"), (60.0, "short of CPU")])
def test_a_thread_that_waits_for_a_core_is_starved(tmp_path, monkeypatch, waited_s, condition):
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("10 1000 1\n")
    monkeypatch.setattr("jupyter_mntrain.agent.machine.links.turn.SCHEDSTAT", schedstat)
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


@pytest.mark.parametrize(
    ("arrived", "passed_s", "most"),
    [
        (0, 0.0, LEAST_QUEUED_BYTES),
        (100_000, 2.0, LEAST_QUEUED_BYTES),  # 0.4 Mbit/s
        (500_000, 2.0, int(250_000 * QUEUED_S)),  # 2 Mbit/s
        (1 << 34, 2.0, 64 << 20),
    ],
)
def test_what_waits_for_a_slow_link_is_what_it_carries_soon(arrived, passed_s, most):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        _bound_queue(connection, arrived, passed_s)
        assert connection.getsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT) == most


class SimulatedLine:
    """A line whose truth is known, on a clock of its own: full packets, every second of which is
    acknowledged, and a queue of half a second before them.

    Args:
        bytes_per_s: with headers.
        lost: share of the packets that are sent again.
        ends_s, end: when it ends, and how.
    """

    segment_bytes, packet_bytes = 1448, 1514

    def __init__(self, bytes_per_s: float, lost: float = 0.0, ends_s: float = 1e9, end=None):
        self.bytes_per_s, self.ends_s, self.end = bytes_per_s, ends_s, end
        self.payload_per_s = bytes_per_s * self.segment_bytes / self.packet_bytes * (1 - lost)
        self.clock_s = self.sent = 0.0

    def now_s(self) -> float:
        return self.clock_s

    def carried_s(self) -> float:
        return min(self.clock_s, self.ends_s)

    def pieces(self) -> Iterator[int]:
        piece = int(min(max(16 << 10, self.bytes_per_s / 1000), 1 << 20))
        while True:
            waits = self.sent + piece - self.payload_per_s * (self.carried_s() + QUEUED_S)
            self.clock_s += max(0.0, waits) / self.payload_per_s
            if self.clock_s >= self.ends_s:
                if isinstance(self.end, TimeoutError):
                    self.clock_s = self.ends_s + 5.0
                raise self.end
            self.sent += piece
            yield piece

    def reading(self, sent_bytes: int) -> Reading:
        acknowledged = 2 * self.segment_bytes
        arrived = min(sent_bytes, self.payload_per_s * self.carried_s())
        counted = self.bytes_per_s * self.carried_s()
        return Reading(self.clock_s, int(arrived // acknowledged) * acknowledged, int(counted))


@pytest.mark.parametrize("lost", [0.0, 0.02])
@pytest.mark.parametrize("mbit_per_s", [0.5, 2, 100, 1000, 25_000])
def test_slow_lossy_and_very_fast_lines_are_measured_within_5_percent(mbit_per_s, lost):
    line = SimulatedLine(mbit_per_s * 1e6 / 8, lost)
    sent = fill(line, 1.0)
    assert sent.counted_bytes_per_s == pytest.approx(line.bytes_per_s, rel=0.05)
    assert sent.payload_bytes_per_s == pytest.approx(line.payload_per_s, rel=0.05)
    assert not sent.is_cut_short
    assert line.clock_s < (1.2 if mbit_per_s >= 2 else 4.0)


def test_a_line_that_breaks_keeps_what_was_counted():
    line = SimulatedLine(1.25e6, ends_s=0.9, end=ConnectionResetError())
    sent = fill(line, 1.0)
    assert sent.is_cut_short
    assert sent.payload_bytes_per_s == pytest.approx(line.payload_per_s, rel=0.05)


def test_of_a_line_that_stalls_the_time_in_which_nothing_went_counts():
    line = SimulatedLine(1.25e6, ends_s=0.9, end=TimeoutError())
    sent = fill(line, 1.0)
    assert sent.is_cut_short
    counted_s = line.clock_s - 0.02  # the warm-up
    carried = line.payload_per_s * 0.88
    assert sent.payload_bytes_per_s == pytest.approx(carried / counted_s, rel=0.05)


@pytest.mark.parametrize("end", [ConnectionResetError(), TimeoutError()])
def test_a_line_that_ends_at_once_has_no_rate(end):
    with pytest.raises(type(end)):
        fill(SimulatedLine(1.25e6, ends_s=0.0, end=end), 1.0)
    with pytest.raises(ConnectionResetError):
        fill(SimulatedLine(1.25e6, ends_s=0.1, end=ConnectionResetError()), 1.0)


def test_a_connection_that_stalls_is_measured_as_cut_short(monkeypatch):
    """Both ends are real: the receiver reads for half a second, and no more."""
    monkeypatch.setattr("jupyter_mntrain.agent.machine.links.probe.IO_TIMEOUT_S", 0.5)
    is_over = threading.Event()

    def read_for_a_while(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            end_s = time.monotonic() + 0.5
            while time.monotonic() < end_s:
                connection.recv(1 << 20)
            is_over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = threading.Thread(target=read_for_a_while, args=(server,))
        reader.start()
        ticket = ProbeTicket(port=server.getsockname()[1], token="0" * 16)
        try:
            link = measure(request(ticket, seconds=9.0), "node1", idle)
        finally:
            is_over.set()
            reader.join()
    assert link.capacity.condition == "cut short"
    assert link.capacity.bytes_per_s > 1e7
