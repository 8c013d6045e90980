"""Path records: the network trials that the doctor requests of nodes, and their results."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.evidence import Neighbor

MOST_PORTS = 8
MOST_PEERS = 64

LEAST_PORT = 1024
"""Lower ones need root."""

Port = Annotated[int, Meta(ge=LEAST_PORT, le=65535)]

PortTrouble = Literal["silent", "refused", "unreachable", "no source", "another machine"]
"""``unreachable``: an answer says so, or nobody has the address. ``no source``: the trying node has
lost its own address. ``another machine``: it opens, but the node that listens has not answered.
"""
Flow = Literal["works", "stuck", "lossy"]
"""Result of sending many bytes. ``stuck``: small packets arrive and large ones do not."""


class PathListen(Record, frozen=True):
    """Request to listen for trials on an address, for some seconds.

    Args:
        ports: besides a free one, those of them that nobody uses.
    """

    address: str
    ports: Annotated[tuple[Port, ...], Meta(max_length=MOST_PORTS)] = ()


class PathTicket(Record, frozen=True):
    """The ports on which a node listens now.

    Args:
        token: who sends it is answered.
        port: a random one, for TCP and UDP.
        ports: of those asked for, and some of the range that the kernel chooses ports from.
        range: that range, first and last port.
        is_busy: a job trains there: a load would disturb it, and what is lost says nothing.
    """

    token: str
    port: int
    ports: tuple[int, ...] = ()
    range: tuple[int, int] | None = None
    is_busy: bool = False


class PathTarget(Record, frozen=True):
    """A peer to try.

    Args:
        interface, source: of the node that tries.
        address: the peer's, where it listens.
    """

    peer: str
    interface: str
    source: str
    address: str
    ticket: PathTicket


class PathsAsked(Record, frozen=True):
    """Request to try the paths to some peers, all at once.

    Args:
        is_loaded: also send as much as goes for a moment, if no job trains at either end.
    """

    targets: Annotated[tuple[PathTarget, ...], Meta(max_length=MOST_PEERS)]
    is_loaded: bool = True


class PortTry(Record, frozen=True):
    """The result of a connection; ``trouble`` is ``None`` if it opened."""

    port: int
    trouble: PortTrouble | None = None


class Resent(Record, frozen=True):
    """The packets of a connection, and how many of them were retransmitted."""

    packets: int
    again: int


class PathTrial(Record, frozen=True):
    """What a node found about the path to a peer.

    Args:
        tries: of each port; the random one comes first.
        flow: ``None`` if no connection opened.
        are_large_lost: of a connection that is stuck, all large packets were sent again, and none
            arrived.
        path_mtu: bytes of the largest packet that came through; ``None`` if none was answered.
        round_trip_s: median; ``None`` if no connection opened.
        load: ``None`` if it was not loaded.
        leaves_by: the interface over which the kernel sends to that address.
        neighbor: who answers for the address on that network; ``None`` if unknown.
        knocks: connections that were begun to a port that fails, to be found in the counters of
            whoever drops them.
        is_kept: this machine's own firewall does not let them out.
    """

    node: str
    peer: str
    interface: str
    source: str
    address: str
    tries: tuple[PortTry, ...]
    flow: Flow | None = None
    are_large_lost: bool = False
    path_mtu: int | None = None
    round_trip_s: float | None = None
    load: Resent | None = None
    leaves_by: str = ""
    neighbor: Neighbor | None = None
    knocks: int = 0
    is_kept: bool = False

    @property
    def trouble(self) -> PortTrouble | None:
        """The trouble of the random port, if any."""
        return self.tries[0].trouble


class PathEnd(Record, frozen=True):
    """Request to stop listening, by the token of a ticket."""

    token: str


class PathHeard(Record, frozen=True):
    """What a node saw while it listened.

    Args:
        dropped: packets that arrived at the machine, and that its firewall did not let in.
        half_open: addresses whose connections it has answered, without an answer to that.
    """

    dropped: int = 0
    half_open: tuple[str, ...] = ()


class PathsFound(Record, frozen=True):
    """What all nodes found about the paths between them.

    Args:
        heard: by node.
        failed: why a node could not listen or try, by node.
    """

    trials: tuple[PathTrial, ...] = ()
    heard: dict[str, PathHeard] = {}
    failed: dict[str, str] = {}
    ranges: dict[str, tuple[int, int]] = {}
    """The ports that a node's kernel chooses from, by node."""
