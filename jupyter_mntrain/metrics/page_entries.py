"""Page entries: nodes and jobs as the Jupyter server and a saved notebook show them.

Neither the environment nor the files of a job are in here: they may hold secrets, and a notebook
is handed on.
"""

from __future__ import annotations

from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.headline import Hurt
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.loss_line import LossLine
from jupyter_mntrain.model.records.job import (
    JobState,
    PartStatus,
    Placement,
    Restart,
)
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.model.records.node import NodeView
from jupyter_mntrain.plan.software.versions import Divergence

BUNDLE_VERSION = 1
"""Raised when an older extension could no longer draw what a newer kernel wrote."""

JOB_MIME = "application/vnd.mntrain.job+json"


class NodeEntry(Record, frozen=True):
    """A node as the page lists it.

    Args:
        key: stays the same while the node is known, whatever its name or address become.
        divergences: its versions that are not the majority's.
    """

    key: str
    name: str
    view: NodeView
    divergences: tuple[Divergence, ...] = ()


class JobEntry(Record, frozen=True):
    """A job as the page lists it: what and where it is, its progress and its problems.

    Args:
        progress: of ranks that do something other than steps.
        reasons: how sure the problem is, and why; empty if nothing else happened.
        run: that it belongs to, if another job began it.
        hurt: how it is hurt most now, which is told first; ``None`` if all is well.
    """

    job_id: JobId
    name: str
    state: JobState
    entry: tuple[str, ...]
    attempt: int
    submitted_s: float
    placements: tuple[Placement, ...]
    parts: tuple[PartStatus, ...]
    numbers: JobNumbers
    progress: tuple[RankProgress, ...] = ()
    submitted_by: str = ""
    problem: Problem | None = None
    reasons: str = ""
    stall: Problem | None = None
    warnings: tuple[Problem, ...] = ()
    hurt: Hurt | None = None
    restart: Restart | None = None
    note: str = ""
    run: JobId | None = None
    loss_line: LossLine | None = None


class JobBundle(Record, frozen=True):
    """The ``application/vnd.mntrain.job+json`` output: enough to draw the job without a server."""

    cluster: str
    job: JobEntry
    series: JobSeries
    saved_s: float
    version: int = BUNDLE_VERSION
