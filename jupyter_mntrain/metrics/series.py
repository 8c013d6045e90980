"""Job series: a job's history as columns of numbers, thinned to what a chart can show.

One shape serves all: the whole history, what is new since a number, and what a saved notebook
keeps. ``None`` in a column = the step does not say.
"""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.node import CapacitySource

Column = tuple[float | None, ...]


class RankColumns(Record, frozen=True):
    """One rank, a row per optimizer step (or per few, where they were thinned).

    Shares are of the step's duration, 0..1, and add up to 1: ``compute`` is forward, backward and
    the optimizer; ``send`` is what the link needs at its measured capacity for the bytes this
    rank sent to other nodes; ``bubble`` is the schedule's own idle share; ``wait`` is the rest.
    """

    rank: Rank
    node: str
    time_s: Column = ()
    """Unix time, by the rank's own clock, of the end of the step."""
    step: Column = ()
    step_s: Column = ()
    tokens_per_s: Column = ()
    pace_tokens_per_s: Column = ()
    """Tokens over the time it computed: what it could do if it never waited."""
    mfu: Column = ()
    compute: Column = ()
    send: Column = ()
    wait: Column = ()
    bubble: Column = ()
    memory_bytes: Column = ()
    local_rank: int = 0
    stages: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    device: str | None = None


class JobColumns(Record, frozen=True):
    """The job as a whole: a row per step that every rank has finished."""

    time_s: Column = ()
    step: Column = ()
    tokens_per_s: Column = ()
    mfu: Column = ()
    bubble: Column = ()
    loss: Column = ()


class EvaluationColumns(Record, frozen=True):
    """The loss on text that is not trained on: a row per evaluation."""

    time_s: Column = ()
    step: Column = ()
    """Steps done; 0 = before the first one."""
    loss: Column = ()


class WrittenText(Record, frozen=True):
    """What the model went on with after so many steps, when it was given ``prompt``."""

    time_s: float
    step: int
    prompt: str
    text: str


class LinkColumns(Record, frozen=True):
    """The interface a node trains over, about a row per second; bytes per second, per direction.

    ``sent`` and ``received`` are the interface's counters (``basis`` "interface") or, where
    several nodes share them, what the ranks say (``basis`` "ranks"). ``own_…`` is what this job's
    ranks say they exchanged with other nodes: the rest is other traffic.
    """

    node: str
    interface: str
    basis: Literal["interface", "ranks"]
    peers: tuple[str, ...] = ()
    """Nodes its ranks exchange activations with."""
    capacity_bytes_per_s: float | None = None
    """Measured or given, never what the card claims."""
    capacity_source: CapacitySource | None = None
    time_s: Column = ()
    sent: Column = ()
    received: Column = ()
    own_sent: Column = ()
    own_received: Column = ()


class JobSeries(Record, frozen=True):
    """Rows numbered ``since < number <= seq`` of one attempt.

    Args:
        stream: names the numbering; rows of another stream do not continue these.
        since: 0 = this is everything: replace what you have; else append.
    """

    job_id: JobId
    attempt: int
    stream: str
    since: int
    seq: int
    ranks: tuple[RankColumns, ...] = ()
    job: JobColumns = JobColumns()
    links: tuple[LinkColumns, ...] = ()
    evaluation: EvaluationColumns = EvaluationColumns()
    texts: tuple[WrittenText, ...] = ()
    """Oldest first, the newest few: whoever is far behind does not get those in between."""
