"""Counters: the kernel's counters that concern a part, all read at one time."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from jupyter_mntrain.agent.machine.devices.limits import own_groups
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Attempt, Placement
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.telemetry.kernel_files import kernel_text


class RankCounters(Record, frozen=True):
    """Seconds and counts since a rank's process began.

    Args:
        run_s: of its main thread on a core; ``ready_s`` without one, though it was ready.
        cpu_s: of all its threads.
        throttled_s: of its control group.
        disk_s, stopped_s: in these states of the kernel, since it has been watched.
        faults: pages that it read back from disk.
        read_bytes: that it read from disks.
    """

    rank: Rank
    run_s: float = 0.0
    ready_s: float = 0.0
    cpu_s: float = 0.0
    throttled_s: float = 0.0
    disk_s: float = 0.0
    stopped_s: float = 0.0
    faults: int = 0
    read_bytes: int = 0


class LinkCounters(Record, frozen=True):
    """Counters of all connections from this node's ranks to another node.

    Args:
        busy_s: with something to send that the receiver had room for.
        rtt_s: smoothed round-trip time, the longest.
    """

    peer: str
    sent_bytes: int = 0
    received_bytes: int = 0
    busy_s: float = 0.0
    segments: int = 0
    resent: int = 0
    rtt_s: float = 0.0


class Counters(Record, frozen=True):
    """All counters at one point in time.

    Args:
        time_s: Unix time, by the clock of the attempt.
        sent_bytes, received_bytes: of the ranks' interface.
        machine_cpu_s: of all programs of this machine.
        io_s: in which some process waited for a disk; ``cpu_s``: for a core.
        clock_hz: mean clock of the processors; 0 if unknown.
    """

    time_s: float
    interface: str
    ranks: tuple[RankCounters, ...] = ()
    links: tuple[LinkCounters, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    machine_cpu_s: float = 0.0
    io_s: float = 0.0
    cpu_s: float = 0.0
    clock_hz: float = 0.0
    competitor: str = ""
    competitor_cores: float = 0.0
    slowed_gpus: str = ""


# Kernel: reads Linux counters of a process or this machine. What does not exist counts as 0.


PROC = Path("/proc")
CPUS = Path("/sys/devices/system/cpu")
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
NANOSECONDS = 1e-9
MICROSECONDS = 1e-6

_STATE, _MAJOR_FAULTS, _USER, _SYSTEM = 0, 9, 11, 12
"""Fields of ``/proc/PID/stat`` after the name; see proc(5)."""


def stat_of(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name; empty if the process is gone."""
    text = kernel_text(PROC / str(pid) / "stat")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def state_of(pid: int) -> str:
    """Return the state letter of a process's main thread; empty if it is gone."""
    fields = stat_of(pid)
    return fields[_STATE] if fields else ""


def cpu_of(fields: list[str]) -> float:
    """Return a process's CPU seconds, from :func:`stat_of`."""
    return (int(fields[_USER]) + int(fields[_SYSTEM])) * TICK_S if fields else 0.0


def faults_of(fields: list[str]) -> int:
    """Return the pages that a process read back from disk, from :func:`stat_of`."""
    return int(fields[_MAJOR_FAULTS]) if fields else 0


def scheduled(pid: int) -> tuple[float, float]:
    """Return the seconds that a process's main thread ran, and that it was ready without a core."""
    words = kernel_text(PROC / str(pid) / "schedstat").split()
    if len(words) < 2:
        return 0.0, 0.0
    return int(words[0]) * NANOSECONDS, int(words[1]) * NANOSECONDS


def read_bytes(pid: int) -> int:
    """Return the bytes that a process has read from disks, not from the page cache or sockets."""
    found = re.search(r"^read_bytes: (\d+)", kernel_text(PROC / str(pid) / "io"), re.MULTILINE)
    return int(found[1]) if found else 0


def throttled(pid: int) -> float:
    """Return the seconds for which CPU limits of a process's control groups have stopped it."""
    told = {2: ("throttled_usec", MICROSECONDS), 1: ("throttled_time", NANOSECONDS)}
    stopped_s: dict[int, float] = {}
    for version, group in own_groups("cpu", PROC / str(pid) / "cgroup"):
        what, unit_s = told[version]
        text = kernel_text(group / "cpu.stat")
        if found := re.search(rf"^{what} (\d+)", text, re.MULTILINE):
            stopped_s[version] = stopped_s.get(version, 0.0) + int(found[1]) * unit_s
    return next(iter(stopped_s.values()), 0.0)


def pressure_of(what: str) -> float:
    """Return the seconds in which any process of this machine waited for ``io``, ``memory`` or
    ``cpu``.
    """
    found = re.search(r"^some .*total=(\d+)", kernel_text(PROC / "pressure" / what), re.MULTILINE)
    return int(found[1]) * MICROSECONDS if found else 0.0


def machine_cpu() -> float:
    """Return the CPU seconds that all programs of this machine have used, including containers."""
    first = kernel_text(PROC / "stat").partition("\n")[0].split()[1:9]
    # Guests' time is part of user time; idle time and waits for disks are none. See proc(5).
    return sum(int(one) for one in [*first[:3], *first[5:]]) * TICK_S


def clock_hz() -> float:
    """Return the mean clock rate of the processors; 0 if unknown."""
    texts = [kernel_text(one) for one in CPUS.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    known = [int(text) * 1e3 for text in texts if text.isdecimal()]
    return sum(known) / len(known) if known else 0.0


class Competitors:
    """Finds the process that uses the most CPU, except those of a job."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._before_s: float | None = None

    def look(self, now_s: float, besides: Collection[int]) -> tuple[str, float]:
        """Return its name and pid, and the cores used since the last call; empty at first."""
        used = {pid: cpu_of(stat_of(pid)) for pid in psutil.pids()}
        before, before_s = self._before, self._before_s
        self._before, self._before_s = used, now_s
        if before_s is None or now_s <= before_s:
            return "", 0.0
        grown = {
            pid: (seconds - before[pid]) / (now_s - before_s)
            for pid, seconds in used.items()
            if pid in before and pid not in besides
        }
        pid = max(grown, key=lambda one: grown[one], default=0)
        name = kernel_text(PROC / str(pid) / "comm")
        return (f"{name}, pid {pid}", grown[pid]) if name else ("", 0.0)

    def forget(self) -> None:
        self._before, self._before_s = {}, None


def family_of(pid: int) -> set[int]:
    """Return a process and its descendants."""
    try:
        return {pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return {pid}


# Connections: reads the kernel's counters of each TCP connection (``TCP_INFO``) over netlink.
# As ``ss --tcp --info`` shows it; see ``sock_diag(7)`` and ``struct tcp_info`` of ``linux/tcp.h``.


NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
DUMP_REQUEST = 0x301
"""``NLM_F_REQUEST | NLM_F_DUMP``."""
DONE, ERROR = 3, 2
ESTABLISHED = 1 << 1
INET_DIAG_INFO = 2
TIMEOUT_S = 1.0
READ_BYTES = 1 << 20

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_ADDRESS_AT, _PEER_AT, _INODE_AT, _ATTRIBUTES_AT = 8, 24, 68, 72
_RTT_AT, _RESENT_AT, _ACKED_AT, _SEGMENTS_AT, _BUSY_AT = 68, 100, 120, 156, 168
_LEAST_INFO = 192
"""Size up to which ``tcp_info`` has these fields: Linux 4.10."""


class TcpConnection(NamedTuple):
    """An open connection.

    Args:
        busy_s: with something to send that the receiver had room for.
    """

    inode: int
    own: str
    peer: str
    sent_bytes: int
    received_bytes: int
    busy_s: float
    segments: int
    resent: int
    rtt_s: float


def connections() -> list[TcpConnection]:
    """Read all open TCP connections of this network namespace; none where that is not possible."""
    found: list[TcpConnection] = []
    with suppress(OSError):
        for family in (socket.AF_INET, socket.AF_INET6):
            found += _dump(family)
    return found


def sockets_of(pid: int) -> set[int]:
    """Read the inodes of the sockets that a process has open."""
    found = set()
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(one.readlink())
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def to_others(
    found: Collection[TcpConnection], inodes: Collection[int]
) -> dict[str, list[TcpConnection]]:
    """Select connections by their sockets, grouped by the peer's address."""
    by_peer: dict[str, list[TcpConnection]] = {}
    for one in found:
        if one.inode in inodes:
            by_peer.setdefault(one.peer, []).append(one)
    return by_peer


def _dump(family: int) -> Iterator[TcpConnection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
        link.settimeout(TIMEOUT_S)
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, ESTABLISHED)
        header = _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, 1, 0)
        link.send(header + body)
        while True:
            block = link.recv(READ_BYTES)
            while len(block) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(block)
                if kind in (DONE, ERROR):
                    return
                if (one := _parse(block[_HEADER.size : length], family)) is not None:
                    yield one
                block = block[_aligned(length) :]


def _parse(message: bytes, family: int) -> TcpConnection | None:
    info = _attribute(message[_ATTRIBUTES_AT:], INET_DIAG_INFO)
    if len(info) < _LEAST_INFO:
        return None
    acked, received = struct.unpack_from("=QQ", info, _ACKED_AT)
    busy, no_room = struct.unpack_from("=QQ", info, _BUSY_AT)
    (rtt,) = struct.unpack_from("=I", info, _RTT_AT)
    (resent,) = struct.unpack_from("=I", info, _RESENT_AT)
    (segments,) = struct.unpack_from("=I", info, _SEGMENTS_AT)
    return TcpConnection(
        inode=struct.unpack_from("=I", message, _INODE_AT)[0],
        own=_address(message[_ADDRESS_AT:], family),
        peer=_address(message[_PEER_AT:], family),
        sent_bytes=acked,
        received_bytes=received,
        busy_s=max(0, busy - no_room) * MICROSECONDS,
        segments=segments,
        resent=resent,
        rtt_s=rtt * MICROSECONDS,
    )


def _attribute(block: bytes, wanted: int) -> bytes:
    while len(block) >= 4:
        length, kind = struct.unpack_from("=HH", block)
        if kind == wanted:
            return block[4:length]
        if length < 4:
            break
        block = block[_aligned(length) :]
    return b""


def _address(field: bytes, family: int) -> str:
    size = 4 if family == socket.AF_INET else 16
    return socket.inet_ntop(family, field[:size]).removeprefix("::ffff:")


def _aligned(length: int) -> int:
    return (length + 3) // 4 * 4


# Reader: reads all counters that concern a part at once, and its ranks' states in between.


class CountersReader:
    """Reads the counters of one attempt on one node.

    Args:
        own: this node's placement.
        gpus: tells what lowers their clocks.
    """

    def __init__(self, attempt: Attempt, own: Placement, gpus: GpuReader) -> None:
        self._own = own
        self._gpus = gpus
        self._node_at = {
            one.address: one.node for one in attempt.placements if one.node_id != own.node_id
        }
        self._in_state: dict[Rank, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._last_look_s: float | None = None
        self._competitors = Competitors()

    @property
    def interface(self) -> str:
        return self._own.interface

    def look(self, pids: Mapping[Rank, int], now_s: float) -> None:
        """Note the states of the ranks. Call several times a second."""
        before_s, self._last_look_s = self._last_look_s, now_s
        passed_s = min(1.0, now_s - before_s) if before_s is not None else 0.0
        for rank, pid in pids.items():
            self._in_state[rank][state_of(pid)] += passed_s

    def read(self, pids: Mapping[Rank, int], now_s: float, *, is_odd: bool) -> Counters:
        """Read all counters.

        Args:
            now_s: Unix time, by the clock of the attempt.
            is_odd: also look for what may be the cause of a slowdown.
        """
        # Counters of a machine's interfaces are gone with the interface.
        moved = psutil.net_io_counters(pernic=True).get(self._own.interface)
        competitor, cores = "", 0.0
        if is_odd:
            ours = {one for pid in pids.values() for one in family_of(pid)}
            competitor, cores = self._competitors.look(now_s, ours)
        else:
            self._competitors.forget()
        return Counters(
            time_s=now_s,
            interface=self._own.interface,
            ranks=tuple(self._rank(rank, pid) for rank, pid in sorted(pids.items())),
            links=tuple(self._links(pids)),
            sent_bytes=moved.bytes_sent if moved else 0,
            received_bytes=moved.bytes_recv if moved else 0,
            machine_cpu_s=machine_cpu(),
            io_s=pressure_of("io"),
            cpu_s=pressure_of("cpu"),
            clock_hz=clock_hz(),
            competitor=competitor,
            competitor_cores=cores,
            slowed_gpus=self._slowed_gpus() if is_odd else "",
        )

    def _rank(self, rank: Rank, pid: int) -> RankCounters:
        fields = stat_of(pid)
        run_s, ready_s = scheduled(pid)
        states = self._in_state[rank]
        return RankCounters(
            rank=rank,
            run_s=run_s,
            ready_s=ready_s,
            cpu_s=cpu_of(fields),
            throttled_s=throttled(pid),
            disk_s=states["D"],
            stopped_s=states["T"] + states["t"],
            faults=faults_of(fields),
            read_bytes=read_bytes(pid),
        )

    def _links(self, pids: Mapping[Rank, int]) -> list[LinkCounters]:
        if not self._node_at:
            return []
        inodes = {one for pid in pids.values() for one in sockets_of(pid)}
        return [
            _sum(self._node_at[address], found)
            for address, found in to_others(connections(), inodes).items()
            if address in self._node_at
        ]

    def _slowed_gpus(self) -> str:
        if not self._own.gpus:
            return ""
        mine = [gpu for gpu in self._gpus.read() if gpu.index in self._own.gpus]
        found = [self._gpus.slowed_by(gpu.uuid) for gpu in mine]
        return next((one for one in found if one.startswith("clocks lowered")), "")


def _sum(node: str, found: list[TcpConnection]) -> LinkCounters:
    return LinkCounters(
        peer=node,
        sent_bytes=sum(one.sent_bytes for one in found),
        received_bytes=sum(one.received_bytes for one in found),
        busy_s=sum(one.busy_s for one in found),
        segments=sum(one.segments for one in found),
        resent=sum(one.resent for one in found),
        rtt_s=max(one.rtt_s for one in found),
    )
