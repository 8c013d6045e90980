"""Running settings: asks a running job's ranks for other settings, and tells what became of it."""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import whole_spec
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.lifecycle.listing import job_step
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.origin import RunningChange
from jupyter_mntrain.plan.resume import steps_in_all
from jupyter_mntrain.recipe.changes.running import (
    changed_while_running,
    rate_notes,
    running_recipe,
)
from jupyter_mntrain.recipe.sections import Recipe


class PlannedChange(Record, frozen=True):
    """A change of a running job's settings, as its ranks were asked for it.

    Args:
        before, after: what the job trains by.
    """

    request: SettingsRequest
    before: Recipe
    after: Recipe


class SettingsChanged(Record, frozen=True):
    """What became of a change of a running job's settings.

    Args:
        change: as all ranks took it; ``None`` if they have not yet, or the attempt ended first.
        notes: what it does to the learning rate, and what changes with it by itself.
    """

    change: RunningChange | None = None
    notes: tuple[str, ...] = ()


async def ask_to_change(
    live: ClusterView, view: JobView, settings: tuple[str, ...], by: str
) -> PlannedChange:
    """Check a change, and ask the head's ranks for it: they have all others take the same step.

    Raises:
        RefusedError: the job has ended, or does not run yet.
        SpecError, RecipeError: it runs no recipe, or cannot run with these settings.
        NodeError: the head does not answer.
    """
    if view.state in TERMINAL:
        raise RefusedError(
            f"job {view.job_id} is over ({view.state})",
            fix=f"go on with other settings: mntrain resume {view.job_id} --set {settings[0]}",
        )
    before = running_recipe(await whole_spec(live, view), view.job_id)
    train = replace(before.train, steps=steps_in_all(before, before, view))
    before = replace(before, train=train)
    step = job_step(view) or 0
    after = changed_while_running(before, settings, step=step, job_id=view.job_id)
    key = secrets.token_hex(8)
    request = SettingsRequest(key=key, attempt=view.attempt.number, settings=settings, by=by)
    client = live.client_of(view.attempt.head)
    live.take_record(await persist(lambda: client.change_settings(view.job_id, request)))
    return PlannedChange(request, before, after)


def outcome_of(plan: PlannedChange, change: RunningChange | None) -> SettingsChanged:
    """What became of a change; ``None`` if it was not taken."""
    if change is None:
        return SettingsChanged()
    return SettingsChanged(change, rate_notes(plan.before, plan.after, step=change.step))
