"""Saves: what a part remembers of its complete checkpoints."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.lifecycle.events import SavedEvent
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import PartStatus

MOST_SAVED = 32
"""Newest checkpoints of an attempt that are remembered: every heartbeat carries them."""


def saved_changes(part: PartStatus, event: SavedEvent) -> dict[str, Any]:
    """The newest step saved, and when each was complete: each step once, at its first report."""
    changes: dict[str, Any] = {"saved_step": max(event.step, part.saved_step or 0)}
    if event.time_s > 0 and all(one.step != event.step for one in part.saved):
        save = SavedStep(step=event.step, time_s=event.time_s)
        changes["saved"] = (*part.saved, save)[-MOST_SAVED:]
    return changes
