"""Keeping: what the owner's word means for jobs that run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.membership.owner.hours import Hours
from jupyter_mntrain.agent.membership.owner.word import OWNER, drained
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver

WARN_BEFORE_S = tunables.seconds("agent.hours_warning_s")
SAVE_BEFORE_S = tunables.seconds("agent.hours_save_s")


class Keeping:
    """Ends or warns the jobs that run on a node, as its owner said.

    Args:
        clock: Unix time.
    """

    def __init__(self, node: LocalNode, clock: Callable[[], float] = time.time) -> None:
        self._node = node
        self._word = node.owner
        self._clock = clock
        self._saved: set[tuple[JobId, int]] = set()
        """Attempts that were asked to save."""

    def keep(self) -> None:
        """Call at every beat."""
        self._node.check_owner()
        drain, hours = self._word.lending.drain, self._word.hours
        for job in self._node.jobs.active():
            if job.record.is_queued or job.record.part.state == "stopping":
                continue
            if drain is not None and drain.ends_jobs:
                self._end(job, Kind.DRAINED, drained(drain, self._clock()))
            else:
                self._keep_hours(job, hours)

    def _keep_hours(self, job: LocalJob, hours: Hours | None) -> None:
        now_s, is_strict = self._clock(), self._word.lending.is_strict
        left_s = hours.closes_in_s(now_s) if hours is not None else None
        if hours is None or (hours.is_open(now_s) and not (is_strict and left_s is not None)):
            self._warn(job, None)
        elif left_s is not None:
            cause = f"its owner has the jobs here ended at {hours.closes_at(now_s)}"
            self._warn(job, cause if left_s <= WARN_BEFORE_S else None)
            if left_s <= SAVE_BEFORE_S:
                self._save(job)
        elif is_strict:
            cause = f"its owner lends it until {hours.ended_at(now_s)}, and has jobs ended then"
            self._end(job, Kind.OUT_OF_HOURS, cause)
        else:
            cause = f"runs past the hours it is lent, which ended at {hours.ended_at(now_s)}"
            self._warn(job, cause)

    def _end(self, job: LocalJob, kind: Kind, cause: str) -> None:
        fix = (
            "leave this node out, or launch it with --restarts: it then goes on from its newest "
            "checkpoint when the node takes jobs again"
        )
        node = job.record.part.node
        job.abort(Problem(kind=kind, cause=cause, fix=fix, node=node, time_s=job.now_s()))
        self._node.audit.note("stop", job=job.record.job_id, why=kind, who=OWNER)

    def _warn(self, job: LocalJob, cause: str | None) -> None:
        """Replace the warning about hours, or take it back."""
        kind = Kind.OUT_OF_HOURS
        told = [one.cause for one in job.record.part.warnings if one.kind is kind]
        if told == ([] if cause is None else [cause]):
            return
        job.change(WarningOver(kind=kind))
        if cause is not None:
            fix = f"save a checkpoint: mntrain save {job.record.job_id}; or ask the node's owner"
            job.change(Warned(problem=Problem(kind=kind, cause=cause, fix=fix, time_s=job.now_s())))

    def _save(self, job: LocalJob) -> None:
        """Ask for a checkpoint, once; only the head can, so that all ranks save the same step."""
        key = (job.record.job_id, job.record.attempt.number)
        if job.placement.node_rank != 0 or key in self._saved:
            return
        self._saved.add(key)
        with suppress(RefusedError, OSError):  # a script that cannot save; a full disk
            job.save_checkpoint(SaveRequest(key=secrets.token_hex(8), attempt=key[1]))
