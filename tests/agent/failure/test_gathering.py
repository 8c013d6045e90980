"""Evidence of a part's surroundings: from files as the kernel has them, and from real sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.failure.gathering import gather, network_state, note_at_launch
from jupyter_mntrain.agent.failure.kernel_log import fault_lines
from jupyter_mntrain.agent.failure.tcp import counters, stuck_connections
from jupyter_mntrain.model.ids import JobId

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
LINE = "   0: {local}:A1B2 0202A8C0:C350 {state} 00000400:00000000 {timer}:00000010 {resends} 0\n"
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
    assert counters()["OutSegs"] > 0
    assert counters(Path("/none")) == {}


def test_evidence_compares_now_with_the_launch(tmp_path: Path) -> None:
    note_at_launch(tmp_path, "lo")
    found = gather(AttemptDirectory(tmp_path, JobId("j-00000001"), 1), "lo", ["agent's own"])
    assert found.at_launch is not None
    assert found.network.is_there
    assert found.network.addresses == found.at_launch.addresses != ()
    assert found.network.sent >= found.at_launch.sent
    assert {disk.use for disk in found.disks} >= {"job", "temporary files"}
    assert all(disk.free_bytes for disk in found.disks if disk.use == "job")
    assert found.agent == ("agent's own",)
    assert found.links is None


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    gone = AttemptDirectory(tmp_path / "gone", JobId("j-00000001"), 1)
    found = gather(gone, "no-such-interface")
    assert not found.network.is_there
    assert found.at_launch is None
    assert next(disk for disk in found.disks if disk.use == "job").free_bytes is None
    assert not network_state("no-such-interface").addresses


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
