"""Link records: the state of a link's ends when it was measured, and a measurement's messages."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record

MOST_STREAMS = 64
"""Connections that a measurement may send over at once: NCCL opens at most 64 to a peer."""

IO_TIMEOUT_S = 5.0
"""Timeout for the other end of a measurement to connect, send or receive."""

LONGEST_MEASURE_S = tunables.seconds("links.longest_measure_s")
"""Longest measurement that an agent makes, whatever it is asked for: it keeps jobs from the
link."""

LEAST_COUNTED_BYTES = 192 << 10
"""A slow link is measured until so much has arrived: an acknowledgment stands for two packets,
which is 5 % of what 0.5 Mbit/s carry in a second, and 1.5 % of this."""

MEASURE_LEASE_S = 30.0
"""How long a driver that measures keeps others from it after it last said so, and how long another
one waits for its turn."""

Streams = Annotated[int, Meta(ge=1, le=MOST_STREAMS)]


class LinkEnd(Record, frozen=True):
    """An interface's state when a link was measured over it: if it changes, the link may, too.

    Args:
        came_up: how often its carrier had come up; ``None`` if that is unknown.
    """

    mac: str | None = None
    mtu: int | None = None
    speed_mbit_per_s: int | None = None
    addresses: tuple[str, ...] = ()
    came_up: int | None = None


class MeasureLease(Record, frozen=True):
    """Request for the exclusive right to measure a node's links; repeat it to renew the right.

    Args:
        key: of this measurement.
        who: user and host, for people.
        interfaces: that it will measure here.
        is_beside_jobs: also if a job trains over one of them.
        expires_in_s: 0 gives it back.
    """

    key: Annotated[str, Meta(min_length=1, max_length=64)]
    who: str = ""
    interfaces: tuple[str, ...] = ()
    is_beside_jobs: bool = False
    expires_in_s: float = MEASURE_LEASE_S


class ProbeListen(Record, frozen=True):
    """Request to open a one-shot sink on ``address`` for a probe; ``lease``: the driver's key."""

    address: str
    streams: Streams = 1
    lease: str = ""


class ProbeTicket(Record, frozen=True):
    """An open sink; it ``echoes`` bytes to be timed, unless its agent is older."""

    port: int
    token: str
    echoes: bool = False


class ProbeSend(Record, frozen=True):
    """Request to send to another agent's sink for ``seconds``, and to store the result.

    Args:
        receiver_end: of the interface that ``address`` belongs to.
        lease: key of the driver's :class:`MeasureLease`.
    """

    interface: str
    source_address: str
    address: str
    port: int
    token: str
    peer: str
    seconds: float = 1.0
    echoes: bool = False
    streams: Streams = 1
    receiver_end: LinkEnd | None = None
    lease: str = ""
