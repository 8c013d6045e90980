"""Waiting for a job to end, with an honest exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.reach import caught_up_history
from jupyter_mntrain.verbs.tables.job import job_report
from jupyter_mntrain.verbs.verb import Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

DETACHED = 130
"""128 + SIGINT, as shells report a program that Ctrl-C ended. The job itself goes on."""


def follow(context: Context, job: Job) -> Outcome:
    """Show the job until it has ended; Ctrl-C leaves it running and says so."""
    try:
        context.screen.follow(job)
    except KeyboardInterrupt:
        return detached_outcome(context, job)
    return ended_outcome(context, job)


def ended_outcome(context: Context, job: Job, *, with_detail: bool = True) -> Outcome:
    """The last table. Exit code 0 only when every rank succeeded."""
    outcome = status_outcome(context, job, with_detail=with_detail)
    code = 0 if job.view().state == "succeeded" else 1
    return Outcome(outcome.renderable, outcome.data, exit_code=code, job=job)


def status_outcome(context: Context, job: Job, *, with_detail: bool = False) -> Outcome:
    """The job's table as it is now."""
    history = caught_up_history(context, job)
    summary = job.summary()
    report = job_report(summary, history, program=context.program, with_detail=with_detail)
    return Outcome(report, msgspec.to_builtins(summary), job=job)


def detached_outcome(context: Context, job: Job) -> Outcome:
    text = Text(
        f"Detached: {job.id} goes on. Watch it again: {context.program} attach {job.id}. "
        f"End it: {context.program} stop {job.id}"
    )
    data = {"job_id": job.id, "state": job.view().state, "detached": True}
    return Outcome(text, data, exit_code=DETACHED, job=job)
