"""Record changes: labels and deletions of a job, on every node that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import JobNotFoundError, NodeError, RefusedError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.records.job import TERMINAL, JobView
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

    @property
    def holds_only_checkpoints(self) -> bool:
        """Whether the run's checkpoints could not be resumed from without this job."""
        return any(one.checkpoints for one in self.nodes)


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
    clients = [live.client_of(place) for place in places]
    answers = await asyncio.gather(
        *(persist(lambda one=one: call(one, view.job_id)) for one in clients),  # type: ignore[misc]
        return_exceptions=True,
    )
    told, silent, failures = [], [], []
    for place, answer in zip(places, answers, strict=True):
        match answer:
            case NodeError() | TrustError():
                silent.append(place.node)
                failures.append(answer)
            case JobNotFoundError():
                pass
            case BaseException():
                raise answer
            case _:
                told.append(answer)
    if not told and failures:
        raise failures[0]
    return told, tuple(silent)
