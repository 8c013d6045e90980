"""Evidence: what a participant finds on its node when its part fails or stalls."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.node import GpuProcess

Trouble = Literal["down", "no connection", "refused", "lossy", "stuck"]
"""Fault of a link: the own interface is down; a connection gets no answer; it is refused; it opens,
but packets of any size are lost, or large ones do not arrive."""


class Neighbor(Record, frozen=True):
    """An address of the ranks' network, as the kernel's neighbor table (ARP) has it.

    Args:
        mac: of the machine that answers for it; empty if none does.
    """

    address: str
    mac: str = ""


class LinkTry(Record, frozen=True):
    """Link try: the result of connecting to another participant.

    Args:
        interface: this node's, which its ranks use.
        trouble: the fault; ``None`` if data arrived.
        peer: the other node; empty if this node's interface is down.
        neighbor: who answered for its address then; ``None`` if that is unknown.
    """

    interface: str
    trouble: Trouble | None
    peer: str = ""
    neighbor: Neighbor | None = None


DiskUse = Literal["job", "checkpoints", "temporary files", "shared memory"]


class Disk(Record, frozen=True):
    """A file system that ranks write to.

    Args:
        free_bytes: for this user; ``None`` if the path cannot be read.
    """

    use: DiskUse
    path: str
    free_bytes: int | None
    is_read_only: bool = False


class NetworkState(Record, frozen=True):
    """The ranks' interface, and this machine's TCP.

    Args:
        addresses: IPv4 addresses with prefix length; empty if the interface is gone.
        carrier_changes: how often its cable was connected or disconnected since boot.
        dropped: packets dropped or damaged since boot.
        sent: TCP segments of the whole machine since boot.
        resent: those of them that were sent again.
        mac: the interface's own.
        neighbors: the other participants' addresses.
    """

    interface: str
    is_there: bool
    is_up: bool
    addresses: tuple[str, ...] = ()
    mtu: int | None = None
    carrier_changes: int = 0
    dropped: int = 0
    sent: int = 0
    resent: int = 0
    mac: str = ""
    neighbors: tuple[Neighbor, ...] = ()


class StuckConnection(Record, frozen=True):
    """An open connection over the ranks' interface whose packets are not acknowledged.

    Args:
        peer: address of its other end.
        resends: how often the oldest packet has been sent again.
    """

    peer: str
    unacknowledged_bytes: int
    resends: int


class OpenFiles(Record, frozen=True):
    """How close a process or the machine is to its limit of open files.

    Args:
        who: ``machine``, ``agent`` or like ``rank 1``.
    """

    who: str
    count: int
    limit: int


class GpuHealth(Record, frozen=True):
    """What a GPU of the job reports about itself.

    Args:
        trouble: why it does not answer, in NVML's words; empty if it does.
        slowed_by: what lowers its clocks.
        uncorrected_errors: of its memory since the driver was loaded; ``None`` without ECC.
        repairs_pending: it will replace memory that failed at its next reset, or cannot.
        memory_bytes: all that it has.
        others: processes that use it and are not of the job.
    """

    index: int
    trouble: str = ""
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()
    uncorrected_errors: int | None = None
    repairs_pending: bool = False
    memory_bytes: int | None = None
    others: tuple[GpuProcess, ...] = ()


class Evidence(Record, frozen=True):
    """What a participant found.

    Args:
        time_s: Unix time, by the clock of the attempt.
        network: of the ranks' interface, now.
        at_launch: the same when the attempt began, but its counters as they were when the job was
            last well; ``None`` if that is unknown.
        oom_kills: processes that the kernel's OOM killer ended since the attempt began; ``None``
            where it does not count them.
        kernel: lines of the kernel's log since then that speak of faults.
        agent: errors of the agent itself, also of gathering.
        nccl_s: Unix time of NCCL's last line in the ranks' output, by the clock of the attempt;
            ``None`` if unknown.
        files: open files that are counted against a limit.
        gpus: of the part, now.
        gpus_at_launch: the same when the attempt began.
        links: tries to connect to the other participants; ``None`` = not tried yet.
    """

    time_s: float
    network: NetworkState
    at_launch: NetworkState | None = None
    disks: tuple[Disk, ...] = ()
    oom_kills: int | None = None
    kernel: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    stuck: tuple[StuckConnection, ...] = ()
    nccl_s: float | None = None
    files: tuple[OpenFiles, ...] = ()
    gpus: tuple[GpuHealth, ...] = ()
    gpus_at_launch: tuple[GpuHealth, ...] = ()
    links: tuple[LinkTry, ...] | None = None
