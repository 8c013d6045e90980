"""Page entries: nodes and jobs as the Jupyter server and a saved notebook show them.

Neither the environment nor the files of a job are in here: they may hold secrets, and a notebook
is handed on.
"""

from __future__ import annotations

from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import (
    Cause,
    Diagnosis,
    JobState,
    PartStatus,
    Placement,
    Restart,
)
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan.versions import Divergence

BUNDLE_VERSION = 1
"""Raised when an older extension could no longer draw what a newer kernel wrote."""

JOB_MIME = "application/vnd.mntrain.job+json"


class NodeEntry(Record, frozen=True):
    """One node.

    Args:
        key: stays the same while the node is known, whatever its name or address become.
        divergences: its versions that are not the majority's.
    """

    key: str
    name: str
    view: NodeView
    divergences: tuple[Divergence, ...] = ()


class RankNumbers(Record, frozen=True):
    """How far a rank is. ``progress`` is what it does before its first step, 0..1 or unknown."""

    rank: Rank
    node: str
    state: JobState
    step: int | None = None
    activity: str | None = None
    progress: float | None = None


class JobNumbers(Record, frozen=True):
    """Where a job stands, over its last few steps; ``None`` = not known.

    Args:
        step: optimizer steps that every rank has finished.
        step_s: seconds a step takes now.
        remaining_s: at this pace; ``None`` when the number of steps is not known.
        mfu: of the job, 0..1.
        bubble: mean share of a step without forward or backward, 0..1.
        evaluation_loss: the last one, on text that is not trained on.
        slowest_rank: the one with the lowest pace, where there are several.
    """

    step: int = 0
    total_steps: int | None = None
    step_s: float | None = None
    elapsed_s: float | None = None
    remaining_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    bubble: float | None = None
    loss: float | None = None
    evaluation_loss: float | None = None
    slowest_rank: Rank | None = None


class JobEntry(Record, frozen=True):
    """One job: what it is, where it runs, how far it is, why it failed or does not get on."""

    job_id: JobId
    name: str
    state: JobState
    entry: tuple[str, ...]
    attempt: int
    submitted_s: float
    placements: tuple[Placement, ...]
    parts: tuple[PartStatus, ...]
    ranks: tuple[RankNumbers, ...]
    numbers: JobNumbers
    submitted_by: str = ""
    cause: Cause | None = None
    cause_node: str | None = None
    stall: Diagnosis | None = None
    restart: Restart | None = None


class JobBundle(Record, frozen=True):
    """The ``application/vnd.mntrain.job+json`` output: enough to draw the job with no server."""

    cluster: str
    job: JobEntry
    series: JobSeries
    saved_s: float
    version: int = BUNDLE_VERSION
