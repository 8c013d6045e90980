"""Node history: what a node did over time, with and without jobs, as its agent reports it."""

from __future__ import annotations

from typing import Final, Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import JobState

PartKind = Literal["node", "gpu", "interface"]

Figure = Literal[
    "cpu_share",
    "memory_bytes",
    "utilization",
    "power_w",
    "temperature_c",
    "sent_bytes_per_s",
    "received_bytes_per_s",
    "own_sent_bytes_per_s",
    "own_received_bytes_per_s",
]
"""``own_…`` is what the ranks of jobs send and receive, without headers."""

FIGURES: Final[dict[PartKind, tuple[Figure, ...]]] = {
    "node": ("cpu_share", "memory_bytes"),
    "gpu": ("utilization", "memory_bytes", "power_w", "temperature_c"),
    "interface": (
        "sent_bytes_per_s",
        "received_bytes_per_s",
        "own_sent_bytes_per_s",
        "own_received_bytes_per_s",
    ),
}
"""What is kept of each kind of part, in the order of its rows on disk."""

LONGEST_S: Final = 7 * 86_400

POINTS: Final = 600
"""Default number of points per line: about the width of a chart in pixels."""
MOST_POINTS: Final = 4000
"""Maximum number of points per line."""


class HistoryLine(Record, frozen=True):
    """One figure over time: a value per point, ``None`` where it is not known.

    Args:
        mean: of the seconds of a point.
        low, high: the lowest and the highest second of it; empty where a point is one second.
    """

    figure: Figure
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


class HistoryPart(Record, frozen=True):
    """A component of a node: the node itself, a GPU or a network interface.

    Args:
        key: a GPU's UUID, or an interface's name; empty for the node.
        index: of a GPU, when it was seen last.
        model: a GPU's name.
        total: memory of the node or of a GPU, in bytes; capacity of an interface, in bytes per
            second. ``None`` = not known.
    """

    kind: PartKind
    key: str = ""
    index: int | None = None
    model: str = ""
    total: float | None = None
    lines: tuple[HistoryLine, ...] = ()


class HistoryGap(Record, frozen=True):
    """A period without values.

    Args:
        state: the agent did not run; the node was suspended, or its agent could not run; or it is
            before the first value that was ever taken.
    """

    begin_s: float
    end_s: float
    state: Literal["off", "suspended", "before"]


class HistoryJob(Record, frozen=True):
    """The part of a job that ran on this node.

    Args:
        end_s: Unix time; ``None`` = it has not ended.
    """

    job_id: JobId
    name: str
    state: JobState
    ranks: tuple[Rank, ...]
    gpus: tuple[int, ...]
    begin_s: float
    end_s: float | None = None


class NodeHistory(Record, frozen=True):
    """What a node did in a period.

    Args:
        begin_s: Unix time at which the first point begins.
        step_s: seconds that a point stands for.
        points: how many each line has.
        gpu_note: why there are no GPUs, if there are none.
    """

    node_id: NodeId
    node: str
    begin_s: float
    step_s: float
    points: int
    parts: tuple[HistoryPart, ...] = ()
    gaps: tuple[HistoryGap, ...] = ()
    jobs: tuple[HistoryJob, ...] = ()
    gpu_note: str | None = None

    @property
    def end_s(self) -> float:
        return self.begin_s + self.step_s * self.points
