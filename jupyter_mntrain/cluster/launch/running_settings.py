"""Running settings: changes settings of a running job, and reports the outcome."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import whole_spec
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.lifecycle.listing import job_step
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.origin import RunningChange
from jupyter_mntrain.plan.resume import told_steps


class PlannedChange(NamedTuple):
    """A change of a running job's settings, as it was requested from its ranks.

    Args:
        before, after: what the job trains by.
    """

    request: SettingsRequest
    before: Program
    after: Program


class SettingsChanged(Record, frozen=True):
    """The outcome of a change of a running job's settings.

    Args:
        change: as all ranks took it; ``None`` if they have not yet, or the attempt ended first.
        notes: what it does to the learning rate, and what changes with it by itself.
    """

    change: RunningChange | None = None
    notes: tuple[str, ...] = ()


async def ask_to_change(
    live: ClusterView, view: JobView, settings: tuple[str, ...], by: str
) -> PlannedChange:
    """Check a change, and request it from the head's ranks, which make all others apply it at the
    same step.

    Raises:
        RefusedError: the job has ended, or does not run yet.
        SpecError, RecipeError: it runs no recipe, or cannot run with these settings.
        NodeError: the head does not answer.
    """
    if view.state in TERMINAL:
        raise RefusedError(
            f"job {view.job_id} has ended ({view.state})",
            fix=f"continue with other settings: mntrain resume {view.job_id} --set {settings[0]}",
        )
    step = job_step(view) or 0
    before, after = program_of(await whole_spec(live, view)).changed(
        settings,
        step=step,
        job_id=view.job_id,
        told_steps=told_steps(view),
    )
    key = secrets.token_hex(8)
    request = SettingsRequest(key=key, attempt=view.attempt.number, settings=settings, by=by)
    client = live.client_of(view.attempt.head)
    live.take_record(await persist(lambda: client.change_settings(view.job_id, request)))
    return PlannedChange(request, before, after)


def outcome_of(plan: PlannedChange, change: RunningChange | None) -> SettingsChanged:
    """Return the outcome of a change; ``None`` if it was not applied."""
    if change is None:
        return SettingsChanged()
    return SettingsChanged(change, plan.before.rate_notes(plan.after, step=change.step))
