"""Job series: a job's history as columns of numbers, downsampled to what a chart can show.

One shape serves all: the whole history, what is new since a number, and what a saved notebook
keeps. ``None`` in a column = the step does not say; NaN and infinity are there by name.
"""

from __future__ import annotations

from jupyter_mntrain.metrics.summary import JobSummary, WrittenText
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.number import Number
from jupyter_mntrain.model.records.sequences import DataPreview

Column = tuple[Number | None, ...]


class RankColumns(Record, frozen=True):
    """The columns of one rank: a row per optimizer step, or per few if they were downsampled.

    Shares are of the step's duration, 0..1, and add up to 1: ``compute`` is forward, backward and
    the optimizer; ``coding`` is encoding and decoding what is sent in fewer bits, unknown where
    nothing is; ``send`` is what the link needs at its measured capacity for the bytes this
    rank sent to other nodes; ``schedule_bubble`` is the schedule's own idle share; ``wait`` is the
    rest.
    """

    rank: Rank
    time_s: Column = ()
    """Unix time, by the rank's own clock, of the end of the step."""
    step: Column = ()
    step_s: Column = ()
    tokens_per_s: Column = ()
    pace_tokens_per_s: Column = ()
    mfu: Column = ()
    compute: Column = ()
    coding: Column = ()
    send: Column = ()
    wait: Column = ()
    schedule_bubble: Column = ()
    memory_bytes: Column = ()
    low: dict[str, Column] = {}
    high: dict[str, Column] = {}
    """Lowest and highest values by column, of the first rows: those of several steps."""


class JobColumns(Record, frozen=True):
    """The columns of the whole job: a row per step that every rank has finished."""

    time_s: Column = ()
    step: Column = ()
    step_s: Column = ()
    tokens: Column = ()
    """From step 1 to the end of this one. Steps of earlier attempts are taken to have had as many
    tokens as this attempt's first one."""
    tokens_per_s: Column = ()
    mfu: Column = ()
    bubble: Column = ()
    loss: Column = ()
    low: dict[str, Column] = {}
    high: dict[str, Column] = {}


class EvaluationColumns(Record, frozen=True):
    """The loss on held-out text: a row per evaluation."""

    time_s: Column = ()
    step: Column = ()
    """Steps done; 0 = before the first one."""
    loss: Column = ()


class LinkColumns(Record, frozen=True):
    """The columns of a node's training interface, in bytes per second and direction.

    ``sent`` and ``received`` are the interface's counters, about a row per second, or, where
    several nodes share them, what the ranks report, a row per step. ``own_…`` is what this job's
    ranks say they exchanged with other nodes: the rest is other traffic.
    """

    node: str
    time_s: Column = ()
    sent: Column = ()
    received: Column = ()
    own_sent: Column = ()
    own_received: Column = ()
    low: dict[str, Column] = {}
    high: dict[str, Column] = {}


class JobSeries(Record, frozen=True):
    """Rows numbered ``since < number <= seq`` of one attempt, and the job's summary.

    Args:
        stream: names the numbering; rows of another stream do not continue these.
        since: 0 = this is everything: replace what you have; else append.
        summary: derived from the same rows; who the ranks and links are is said here only.
    """

    job_id: JobId
    attempt: int
    stream: str
    since: int
    seq: int
    summary: JobSummary
    ranks: tuple[RankColumns, ...] = ()
    job: JobColumns = JobColumns()
    links: tuple[LinkColumns, ...] = ()
    evaluation: EvaluationColumns = EvaluationColumns()
    texts: tuple[WrittenText, ...] = ()
    """Oldest first, only the newest few: a reader that is far behind misses those in between."""
    data: DataPreview | None = None
    """What is trained on; ``None`` = not known, or sent before."""
