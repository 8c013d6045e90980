"""Counters: the kernel's counters that concern a part, all read at one time."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank


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
