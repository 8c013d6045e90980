"""Evidence: what a participant finds around its part when that fails or stalls."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record

Trouble = Literal["down", "no connection", "refused", "stuck"]
"""Fault of a link: the own interface is down; a connection gets no answer; it is refused; it opens,
but large packets do not arrive."""


class LinkTry(Record, frozen=True):
    """Link try: the result of connecting to another participant.

    Args:
        interface: this node's, which its ranks use.
        trouble: the fault; ``None`` if data arrived.
        peer: the other node; empty if this node's interface is down.
    """

    interface: str
    trouble: Trouble | None
    peer: str = ""


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


class StuckConnection(Record, frozen=True):
    """An open connection over the ranks' interface whose packets are not acknowledged.

    Args:
        peer: address of its other end.
        resends: how often the oldest packet has been sent again.
    """

    peer: str
    unacknowledged_bytes: int
    resends: int


class Evidence(Record, frozen=True):
    """What a participant found.

    Args:
        time_s: Unix time, by the clock of the attempt.
        network: of the ranks' interface, now.
        at_launch: the same when the attempt began; ``None`` if that is unknown.
        oom_kills: processes that the kernel's OOM killer ended since the attempt began; ``None``
            where it does not count them.
        kernel: lines of the kernel's log since then that speak of faults.
        agent: errors of the agent itself.
        nccl_s: Unix time of NCCL's last line in the ranks' output, by the clock of the attempt;
            ``None`` if unknown.
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
    links: tuple[LinkTry, ...] | None = None
