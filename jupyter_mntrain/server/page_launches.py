"""Page launches: what the page asks to launch, and the answers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jupyter_mntrain.metrics.page_entries import JobEntry
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS


class LaunchJob(Record, frozen=True, forbid_unknown_fields=True):
    """Either the id of a job to run again, or the text of a job file (TOML).

    Args:
        mixed_versions: start even if versions differ between nodes. An acknowledgment for the
            earlier job, or in the job file, does not count for this one.
        skips_doctor: start whatever the doctor would find.
        begin: with the newest checkpoint in this directory on the nodes, or with this folder of
            one; default: as the job file says.
        is_queued: let it wait for its turn instead of refusing if it cannot start now.
        yes: the person has read the job file; without it one that does more than to train by a
            recipe is refused with what it does, unless it was exported or agreed to here.
    """

    job_id: JobId | None = None
    spec: str | None = None
    mixed_versions: bool = False
    skips_doctor: bool = False
    begin: str | None = None
    is_queued: bool = False
    yes: bool = False


class LaunchedJob(Record, frozen=True):
    """A job that was started or queued, and notes on its nodes."""

    job: JobEntry
    notes: tuple[Problem, ...] = ()


class ResumeJob(Record, frozen=True, forbid_unknown_fields=True):
    """Resume a run where it ended.

    Args:
        expected_step: that the person saw; refused if the newest checkpoint is another by now.
        begin: begin a new run with the checkpoint of this step instead.
        steps: that the run is to make in all.
        mixed_versions: start even if versions differ between nodes. An acknowledgment for the
            earlier job does not count for this one.
        skips_doctor: start whatever the doctor would find.
    """

    expected_step: int | None = None
    begin: int | None = None
    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = None
    mixed_versions: bool = False
    skips_doctor: bool = False


class RefusedLaunch(Problem, frozen=True, kw_only=True):
    """The first finding that would end or hang the job; the check can be skipped.

    Args:
        found: what else it found.
    """

    found: tuple[Problem, ...]
