"""Saves: what a part remembers of its complete checkpoints."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.lifecycle.events import SavedEvent
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import TERMINAL, JobView, PartStatus

MOST_SAVED = 32
"""Newest checkpoints of an attempt that are remembered: every heartbeat carries them."""


def saved_changes(part: PartStatus, event: SavedEvent) -> dict[str, Any]:
    """The newest step saved, and when each was complete: each step once, at its first report."""
    changes: dict[str, Any] = {"saved_step": max(event.step, part.saved_step or 0)}
    if event.time_s > 0 and all(one.step != event.step for one in part.saved):
        save = SavedStep(step=event.step, time_s=event.time_s, is_scheduled=event.is_scheduled)
        changes["saved"] = (*part.saved, save)[-MOST_SAVED:]
    return changes


def requested_save(job: JobView, after: int) -> int | None:
    """Step of the newest checkpoint of a later step than ``after`` that somebody asked for, as far
    as is known: a checkpoint that was due may become complete just after a request, which the next
    one answers. Of a job that has ended, of any.
    """
    steps = [one.step for part in job.parts for one in part.saved if not one.is_scheduled]
    if job.state in TERMINAL:
        steps.append(job.saved_step or 0)
    return max((step for step in steps if step > after), default=None)
