"""Benchmark records: what a collective benchmark's ranks measure, and the resulting report."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.node import LinkMeasurement

Operation = Literal["send", "all_reduce", "all_gather"]

OPERATIONS: tuple[Operation, ...] = ("send", "all_reduce", "all_gather")

LARGEST_BYTES = tunables.size("bench.largest_bytes")

LINE_MARK = "mntrain bench: "
"""Rank 0 prints a :data:`BenchedLine` after it, one a line of the job's log."""


class Transport(Record, frozen=True):
    """The networks and backend that carry a rank's messages.

    Args:
        network: NCCL's between nodes: ``IB``, ``Socket`` or a plugin's; empty if unknown, and for
            Gloo.
        devices: those that it may use there: ``mlx5_0:1``, or ``eth1``.
        ways: what it uses, to whichever rank: ``NET/IB/GDRDMA``, ``P2P/CUMEM``, ``SHM``.
        rails: those of ``devices`` that it uses.
        complaint: the line in which NCCL says why it does not use InfiniBand.
    """

    network: str = ""
    devices: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    complaint: str = ""


class BenchedRank(Record, frozen=True, tag="rank"):
    """A rank of a benchmark.

    Args:
        device: ``cpu``, or the name of its GPU.
    """

    rank: int
    node: str
    device: str
    backend: Literal["gloo", "nccl"]
    transport: Transport = Transport()


class BenchedSize(Record, frozen=True, tag="size"):
    """The time of an operation with messages of one size.

    Args:
        size_bytes: as NCCL-tests counts it: what a rank sends or receives, the greater of both.
        seconds: of one run, on the slowest rank.
        ranks: that take part.
    """

    operation: Operation
    size_bytes: int
    seconds: float
    runs: int
    ranks: int


class BenchedPair(Record, frozen=True, tag="pair"):
    """The time of messages from one rank to another, while no other rank sends.

    Args:
        seconds: of one message of this size, of several that follow each other.
        latency_s, latency_p99_s: half a round trip of the smallest message, of ``round_trips``.
    """

    sender: int
    receiver: int
    size_bytes: int
    seconds: float
    latency_s: float
    latency_p99_s: float
    round_trips: int


BenchedLine = BenchedRank | BenchedSize | BenchedPair


class SizeFigures(Record, frozen=True):
    """Figures of an operation with messages of one size.

    Args:
        algorithm_bytes_per_s, bus_bytes_per_s: as NCCL-tests define them.
        line_share: of the bus bandwidth, in what the slowest link of the ranks was measured to
            carry; ``None`` if that is unknown.
    """

    operation: Operation
    size_bytes: int
    seconds: float
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    line_share: float | None = None


class PairFigures(Record, frozen=True):
    """Figures of messages from one rank to another.

    Args:
        line_bytes_per_s: payload that the link was measured to carry.
    """

    sender: int
    receiver: int
    sender_node: str
    receiver_node: str
    size_bytes: int
    bytes_per_s: float
    latency_s: float
    line_bytes_per_s: float | None = None

    @property
    def line_share(self) -> float | None:
        return self.bytes_per_s / self.line_bytes_per_s if self.line_bytes_per_s else None


class BenchReport(Record, frozen=True):
    """Result of a collective benchmark.

    Args:
        line_bytes_per_s: payload that the slowest link of its nodes was measured to carry.
        unmeasured: why that is not known, if it is not.
        problems: what is slower than it should be.
        failure: why there are no results; the job is kept then.
        time_s: Unix time of its begin.
    """

    job_id: JobId
    nodes: tuple[str, ...]
    backend: str
    time_s: float
    took_s: float = 0.0
    ranks: tuple[BenchedRank, ...] = ()
    sizes: tuple[SizeFigures, ...] = ()
    pairs: tuple[PairFigures, ...] = ()
    line_bytes_per_s: float | None = None
    unmeasured: str = ""
    problems: tuple[Problem, ...] = ()
    failure: Problem | None = None

    def of(self, operation: Operation) -> tuple[SizeFigures, ...]:
        """Return the figures of one operation, by size."""
        return tuple(one for one in self.sizes if one.operation == operation)


class BenchedLinks(Record, frozen=True):
    """Rates that a benchmark's messages reached over the links of the node that receives this."""

    links: Annotated[tuple[LinkMeasurement, ...], Meta(max_length=4096)]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BenchedLine)


def written_line(one: BenchedLine) -> str:
    """Encode a line as rank 0 prints it."""
    return LINE_MARK + _encoder.encode(one).decode()


def read_line(text: str) -> BenchedLine | None:
    """Parse a line of the job's log; ``None`` if it is not the benchmark's, or damaged."""
    _, mark, content = text.partition(LINE_MARK)
    try:
        return _decoder.decode(content) if mark else None
    except msgspec.DecodeError:
        return None
