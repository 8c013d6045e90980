"""Record changes: labels and deletions of a job, on every node that has it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from jupyter_mntrain.cluster.agents.client import AgentClient, ask_each
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import whole_spec
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    MntrainError,
    NodeError,
    RefusedError,
    TrustError,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.lifecycle.listing import job_step
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobView, RunningChange
from jupyter_mntrain.model.text.label import JobLabel

T = TypeVar("T")


class JobRemoval(Record, frozen=True):
    """What the deletion of a job deletes, or has deleted.

    Args:
        nodes: those that have it and answer.
        silent: participants that do not answer: they keep what they have.
    """

    job_id: JobId
    run: JobId
    nodes: tuple[JobDeletion, ...]
    silent: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.nodes)

    @property
    def checkpoints_bytes(self) -> int:
        """The size of the run's checkpoints, if this is its last job."""
        return sum(one.checkpoints_bytes for one in self.nodes)


async def put_label(live: ClusterView, view: JobView, label: JobLabel) -> tuple[str, ...]:
    """Store a label on every participant. Returns the names of those that do not answer.

    Raises:
        NodeError: none answers.
        SpecError: the name or note cannot be shown, or is too long.
    """
    told, silent = await _ask_all(live, view, lambda one, job_id: one.label(job_id, label))
    for record in told:
        live.take_record(record)
    return silent


async def plan_removal(live: ClusterView, view: JobView) -> JobRemoval:
    """Ask every participant what a deletion would free.

    Raises:
        RefusedError: the job has not ended.
        NodeError: none answers.
    """
    _refuse_live(view)
    nodes, silent = await _ask_all(live, view, AgentClient.deletion)
    return JobRemoval(job_id=view.job_id, run=view.run, nodes=tuple(nodes), silent=silent)


async def remove(live: ClusterView, view: JobView, *, with_checkpoints: bool) -> JobRemoval:
    """Delete an ended job on every participant that answers. Idempotent.

    Raises:
        RefusedError: the job has not ended.
        NodeError: none answers.
    """
    _refuse_live(view)
    nodes, silent = await _ask_all(
        live, view, lambda one, job_id: one.delete_job(job_id, with_checkpoints=with_checkpoints)
    )
    return JobRemoval(job_id=view.job_id, run=view.run, nodes=tuple(nodes), silent=silent)


def _refuse_live(view: JobView) -> None:
    known = [part.state for part in view.parts if part.state != "unknown"]
    if view.restart is not None or not known or any(state not in TERMINAL for state in known):
        raise RefusedError(
            f"job {view.job_id} is {view.state}: only an ended job can be deleted",
            kind=Kind.STILL_RUNNING,
            fix=f"end it first: mntrain stop {view.job_id}",
        )


async def _ask_all(
    live: ClusterView, view: JobView, call: Callable[[AgentClient, JobId], Awaitable[T]]
) -> tuple[Sequence[T], tuple[str, ...]]:
    places = view.attempt.placements
    answers = await ask_each(
        places, lambda place: persist(lambda: call(live.client_of(place), view.job_id))
    )
    told, silent, failures = [], [], []
    for place, answer in zip(places, answers, strict=True):
        match answer:
            case NodeError() | TrustError():
                silent.append(place.node)
                failures.append(answer)
            case JobNotFoundError():
                pass
            case MntrainError():
                raise answer
            case _:
                told.append(answer)
    if not told and failures:
        raise failures[0]
    return told, tuple(silent)


# Running settings: changes settings of a running job, and reports the outcome.


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
    from jupyter_mntrain.plan.resume import told_steps

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
