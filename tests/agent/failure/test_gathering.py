"""Evidence of a part's surroundings: from files as the kernel has them, and from real sockets."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.failure.gathering import Gathering
from jupyter_mntrain.agent.failure.own_errors import OwnErrors
from jupyter_mntrain.agent.machine.interfaces import neighbors
from jupyter_mntrain.agent.machine.kernel_log import fault_lines
from jupyter_mntrain.agent.machine.ports import counters, stuck_connections
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.evidence import Neighbor
from jupyter_mntrain.model.records.job import Attempt, JobRecord, JobSpec, Placement
from jupyter_mntrain.telemetry.gpus import GpuReader

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
LINE = "   0: {local}:A1B2 0202A8C0:C350 {state} 00000400:00000000 {timer}:00000010 {resends} 0\n"
SAID = "hal:1898:1931 [-1] NCCL INFO comm 0x55d rank 0 nranks 2 - Init COMPLETE\n"
OURS = "0102A8C0"
"""192.168.2.1, as a little-endian machine prints it."""


def tcp(directory: Path, *lines: str) -> Path:
    (directory / "net").mkdir(exist_ok=True)
    (directory / "net" / "tcp").write_text(HEAD + "".join(lines))
    return directory


def line(local: str = OURS, state: str = "01", timer: str = "01", resends: int = 5) -> str:
    return LINE.format(local=local, state=state, timer=timer, resends=f"{resends:08X}")


def test_a_connection_that_sends_the_same_packet_again_and_again_is_stuck(tmp_path: Path) -> None:
    others = [
        line(resends=1),
        line(timer="02"),
        line(state="02"),
        line(local="0101A8C0"),
    ]
    found = stuck_connections({"192.168.2.1"}, tcp(tmp_path, line(resends=7), line(), *others))
    assert [(one.peer, one.resends) for one in found] == [("192.168.2.2", 7), ("192.168.2.2", 5)]
    assert found[0].unacknowledged_bytes == 1024
    assert stuck_connections({"192.168.2.1"}, tmp_path / "none") == ()


def test_a_healthy_connection_is_not_stuck_and_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(bytes(1000))
        assert stuck_connections({"127.0.0.1"}) == ()
    assert counters("Tcp")["OutSegs"] > 0
    assert counters("Tcp", Path("/none")) == {}


def gathering(
    directory: Path, interface: str = "lo", gpus: Any = None, environment: Any = None
) -> Gathering:
    """Of node 1 of two, whose ranks use GPU 0."""
    places = tuple(
        Placement(
            node_id=NodeId(str(number) * 32),
            node=f"n{number}",
            node_rank=number,
            first_rank=Rank(number),
            nproc=1,
            gpus=(0,),
            interface=interface,
            address=f"192.168.2.{number}",
            agent=(),
        )
        for number in (1, 2)
    )
    attempt = Attempt(
        number=1, placements=places, master_address="", master_port=1, submitted_s=0.0
    )
    record = JobRecord(
        job_id=JobId("j-00000001"),
        spec=JobSpec(entry=("a.py",), participants=(), environment=environment or {}),
        attempt=attempt,
        part=new_part(places[0].node_id, "n1", range(1)),
    )
    attempts = AttemptDirectory(directory, record.job_id, 1)
    return Gathering(attempts, lambda: record, gpus or GpuReader(), OwnErrors.listening())


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers = [*logging.getLogger().handlers]
    yield
    logging.getLogger().handlers = handlers


def test_evidence_compares_now_with_the_launch(tmp_path: Path) -> None:
    made = gathering(tmp_path)
    made.note_at_launch()
    logging.getLogger("tornado.application").error("a request broke")
    found = made.evidence()
    assert found.at_launch is not None
    assert found.network.is_there
    assert found.network.addresses == found.at_launch.addresses != ()
    assert found.network.sent >= found.at_launch.sent
    assert {disk.use for disk in found.disks} >= {"job", "temporary files", "shared memory"}
    assert all(disk.free_bytes for disk in found.disks if disk.use == "job")
    assert {one.who for one in found.files} == {"machine", "agent"}
    assert all(0 < one.count < one.limit for one in found.files)
    assert found.agent == ("a request broke",)
    assert found.links is None


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    found = gathering(tmp_path / "gone", "no-such-interface").evidence()
    assert not found.network.is_there
    assert found.at_launch is None
    assert next(disk for disk in found.disks if disk.use == "job").free_bytes is None
    assert not found.network.addresses


def test_an_error_of_gathering_is_told_and_hides_nothing_else(tmp_path: Path) -> None:
    class Broken(GpuReader):
        @property
        def nvml(self) -> Any:
            raise ValueError("no card")

    found = gathering(tmp_path, gpus=Broken()).evidence()
    assert found.network.addresses
    assert found.gpus == ()
    (told,) = found.agent
    assert told.startswith("error ")
    assert told.endswith("ValueError: no card")


def test_errors_of_the_agent_before_the_attempt_are_not_its_own() -> None:
    now_s = iter([5.0, 9.0])
    errors = OwnErrors(lambda: next(now_s))
    for text in ("before", "after"):
        errors.emit(logging.makeLogRecord({"msg": text, "levelno": logging.ERROR}))
    assert errors.since(7.0) == ("after",)


def test_the_line_of_a_request_that_failed_is_no_error_beside_its_own() -> None:
    errors = OwnErrors(lambda: 5.0)
    logging.getLogger().addHandler(errors)
    logging.getLogger("tornado.access").error("500 GET /v1/node (127.0.0.1) 1.22ms")
    logging.getLogger("mntrain.agent").error("GET /v1/node failed", exc_info=KeyError("gpu"))
    assert errors.since(0.0) == ("GET /v1/node failed: KeyError: 'gpu'",)


ARP = """\
IP address       HW type     Flags       HW address            Mask     Device
192.168.2.2      0x1         0x2         02:00:00:00:00:02     *        eth1
192.168.2.3      0x1         0x0         02:00:00:00:00:03     *        eth1
192.168.2.4      0x1         0x2         02:00:00:00:00:04     *        eth0
192.168.2.9      0x1         0x2         02:00:00:00:00:09     *        eth1
"""


def test_neighbors_are_those_of_the_ranks_interface(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "arp").write_text(ARP)
    peers = {f"192.168.2.{number}" for number in (2, 3, 4)}
    found = neighbors("eth1", peers, tmp_path)
    assert found == (
        Neighbor(address="192.168.2.2", mac="02:00:00:00:00:02"),
        Neighbor(address="192.168.2.3"),  # incomplete: nothing answers
    )
    assert neighbors("eth1", peers, tmp_path / "none") == ()


def test_only_recent_faults_of_the_kernels_log_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    with open(os.open(log, os.O_RDWR), "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        file.write(b"6,1,5000000,-;NVRM: Xid (PCI:0000:01:00): 79, old\n")
        assert fault_lines(9.0, log) == ()
        file.write(b"6,2,9500000,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off\n SUB=pci\n")
        (found,) = fault_lines(9.0, log)
        assert found.startswith("NVRM: Xid")
        file.write(b"6,3,9600000,-;usb 1-1: new device\n")
        assert fault_lines(9.0, log) == ()
        file.write(b"garbage")
        assert fault_lines(9.0, log) == ()
    assert fault_lines(0.0, tmp_path / "none") == ()


def test_nccl_s_last_line_is_by_the_attempts_clock(tmp_path: Path) -> None:
    evidence = gathering(tmp_path, environment={"NCCL_DEBUG": "info"}).evidence
    assert evidence().nccl_s is None
    for rank, text, age_s in ((0, SAID, 60.0), (1, SAID, 30.0), (2, "step 1\n", 0.0)):
        folder = tmp_path / "ranks" / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(text)
        os.utime(folder / "stdout.log", (time.time() - age_s,) * 2)
    found = evidence()
    assert found.nccl_s is not None
    assert found.time_s - found.nccl_s == pytest.approx(30.0, abs=5.0)
    assert gathering(tmp_path).evidence().nccl_s is None, "it was told to say warnings only"


def test_what_a_job_has_outlived_is_not_counted_against_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, flaps, now_s = gathering(tmp_path), 0, 1000.0
    read = made.network
    monkeypatch.setattr(made, "network", lambda: replace(read(), carrier_changes=flaps))
    monkeypatch.setattr(time, "time", lambda: now_s)
    made.note_at_launch()
    for second in range(60):
        now_s = 1000.0 + second
        flaps = 2 * (second > 20) + 2 * (second > 57)
        made.note_progress(now_s)
    flaps = 6
    for _ in range(100):  # it stands still
        now_s += 1.0
        made.note_progress(1059.0)
    found = made.evidence()
    assert found.at_launch is not None
    assert found.network.carrier_changes - found.at_launch.carrier_changes == 4
