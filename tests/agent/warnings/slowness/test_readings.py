"""Readings: real connections and processes, and files as other kernels have them."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.devices import limits
from jupyter_mntrain.agent.warnings.slowness import counters as kernel
from jupyter_mntrain.agent.warnings.slowness.counters import connections, sockets_of, to_others

SIZE = 3_000_000


def test_a_connection_tells_what_it_has_sent_and_to_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        with sender, receiver:
            received = threading.Thread(target=receiver.recv, args=(SIZE, socket.MSG_WAITALL))
            received.start()
            sender.sendall(bytes(SIZE))
            received.join()
            inode = os.fstat(sender.fileno()).st_ino
            assert inode in sockets_of(os.getpid())
            (own,) = to_others(connections(), {inode})["127.0.0.1"]
    assert own.sent_bytes >= SIZE
    assert own.segments > 0
    assert 0 < own.rtt_s < 1
    assert to_others([own], set()) == {}


def test_a_busy_process_runs_and_a_process_that_is_gone_is_nothing() -> None:
    before, _ = kernel.scheduled(os.getpid())
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass
    after, _ = kernel.scheduled(os.getpid())
    assert after - before >= 0.15
    assert kernel.state_of(os.getpid()) == "R"
    gone = 2**22 + 1
    assert kernel.scheduled(gone) == (0.0, 0.0)
    assert (kernel.state_of(gone), kernel.stat_of(gone), kernel.throttled(gone)) == ("", [], 0.0)


def test_what_all_programs_use_together_is_known() -> None:
    before, own = kernel.machine_cpu(), time.process_time()
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass
    ticks = 2 * kernel.TICK_S
    assert kernel.machine_cpu() - before >= time.process_time() - own - ticks


def test_a_machine_that_does_not_tell_what_all_programs_use_has_used_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "PROC", tmp_path)
    assert kernel.machine_cpu() == 0
    (tmp_path / "stat").write_text("cpu  1 2 4 1000 1000 8 16 32 64 128\ncpu0 9\n")
    assert kernel.machine_cpu() == pytest.approx((1 + 2 + 4 + 8 + 16 + 32) * kernel.TICK_S)


@pytest.mark.parametrize(
    ("membership", "folder", "line"),
    [
        ("0::/a/b", "a", "throttled_usec 2500000"),
        ("3:cpu,cpuacct:/a", "cpu/a", "throttled_time 2500000000"),
    ],
)
def test_a_limit_of_its_own_group_or_of_one_above_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, folder: str, line: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"5:memory:/x\n{membership}\n")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.stat").write_text(f"nr_periods 9\n{line}\n")
    monkeypatch.setattr(kernel, "PROC", tmp_path)
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    assert kernel.throttled(7) == 2.5


def test_the_busiest_other_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "PROC", tmp_path)
    monkeypatch.setattr(kernel.psutil, "pids", lambda: [7, 8, 9])

    def used(ticks: dict[int, int]) -> None:
        for pid, count in ticks.items():
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            fields = " ".join(["R", *["0"] * 10, str(count), "0", *["0"] * 9])
            (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) {fields}")
            (tmp_path / str(pid) / "comm").write_text("ffmpeg\n")

    competitors = kernel.Competitors()
    used({7: 0, 8: 0, 9: 0})
    assert competitors.look(10.0, {9}) == ("", 0.0)
    used({7: 50, 8: 190, 9: 200})
    name, cores = competitors.look(12.0, {9})
    assert name == "ffmpeg, pid 8"
    assert cores == pytest.approx(190 * kernel.TICK_S / 2.0)
