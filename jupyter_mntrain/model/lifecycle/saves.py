"""Saves: what a part records about its checkpoints."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.model.lifecycle.events import SavedEvent
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import TERMINAL, JobView, PartStatus

MOST_SAVED = 32
"""Newest checkpoints of an attempt that are remembered: every heartbeat carries them."""


def saved_changes(part: PartStatus, event: SavedEvent) -> dict[str, Any]:
    """Return a part's fields after a save, which is recorded once, at its first report."""
    changes: dict[str, Any] = {}
    problem = event.problem
    if problem is None:
        changes["saved_step"] = max(event.step, part.saved_step or 0)
    else:
        problem = msgspec.structs.replace(problem, time_s=event.time_s)
    is_known = (event.step, problem is None)
    if event.time_s > 0 and all((one.step, one.problem is None) != is_known for one in part.saved):
        save = SavedStep(event.step, event.time_s, event.is_scheduled, problem)
        changes["saved"] = (*part.saved, save)[-MOST_SAVED:]
    return changes


def requested_save(job: JobView, before: JobView) -> SavedStep | None:
    """Return the outcome of a requested checkpoint; ``None`` if it is not known yet.

    One that was due may become complete or fail just after a request, which the next one answers.
    Of a job that has ended, any later one counts.

    Args:
        before: the job when it was asked.
    """
    newest = before.saved_step or 0
    known = {one.step for part in before.parts for one in part.saved if one.problem is not None}
    asked = [one for part in job.parts for one in part.saved if not one.is_scheduled]
    saved = [one for one in asked if one.problem is None and one.step > newest]
    if job.state in TERMINAL and (job.saved_step or 0) > newest:
        saved.append(SavedStep(job.saved_step or 0, 0.0))
    failed = [one for one in asked if one.problem is not None and one.step not in known]
    return max(saved or failed, key=lambda one: one.step, default=None)
