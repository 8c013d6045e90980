"""Every job this node takes or took part in."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.hub import Hub
from jupyter_mntrain.agent.inventory import usable_cpus
from jupyter_mntrain.agent.job import LocalJob
from jupyter_mntrain.agent.leases import Lease, LeaseBook, PortHolder
from jupyter_mntrain.launch import torchrun_command
from jupyter_mntrain.model.api import JobChanged, StartRequest
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.job import JobRecord
from jupyter_mntrain.model.state import new_part

log = logging.getLogger("mntrain.agent")

KEPT_JOBS = 100
"""Ended jobs kept on disk; the oldest beyond that are deleted when a new one starts."""


class JobBook:
    """Starts, stops and follows jobs; keeps them under ``directory``.

    Args:
        python: interpreter that ranks run under.
    """

    def __init__(
        self,
        directory: Path,
        *,
        node_id: NodeId,
        node: str,
        python: str,
        leases: LeaseBook,
        hub: Hub,
    ) -> None:
        self.directory = directory
        self._node_id = node_id
        self._node = node
        self._python = python
        self._leases = leases
        self._hub = hub
        self._jobs: dict[JobId, LocalJob] = {}
        self._stopped_early: set[tuple[JobId, int]] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def load(self) -> None:
        """Take up what an earlier agent kept: running attempts are adopted, ended ones read."""
        for path in sorted(self.directory.glob("j-*")):
            try:
                job = LocalJob.load(path)
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("job in %s is not readable and left alone: %s", path, error)
                continue
            self._jobs[job.record.job_id] = job
            if job.is_active:
                log.info("adopting job %s", job.record.job_id)
                self._leases.restore(self._lease_of(job))

    def all(self) -> Collection[LocalJob]:
        return self._jobs.values()

    def active(self) -> list[LocalJob]:
        return [job for job in self._jobs.values() if job.is_active]

    def get(self, job_id: JobId) -> LocalJob:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobNotFoundError(
                f"job {job_id} is not known here",
                fix="'jobs' lists the ones that are",
                node=self._node,
            ) from None

    def start(self, request: StartRequest) -> LocalJob:
        """Start this node's part. The same request again changes nothing.

        Raises:
            RefusedError: no lease (it expired, or was released), or stopped before it came.
        """
        number = request.attempt.number
        known = self._jobs.get(request.job_id)
        if known is not None and known.record.attempt.number >= number:
            return known
        if (request.job_id, number) in self._stopped_early:
            raise RefusedError(
                f"job {request.job_id} was stopped before it started", node=self._node
            )
        if self._leases.start(request.job_id, number) is None:
            raise RefusedError(
                f"job {request.job_id} holds no lease here",
                fix="launch it again",
                node=self._node,
            )
        try:
            return self._spawn(request)
        except BaseException:
            self._leases.release(request.job_id, number)
            raise

    def stop(self, job_id: JobId, reason: str, grace_s: float, attempt: int | None) -> JobRecord:
        """End this node's part; an older or ended attempt is left as it is."""
        job = self._jobs.get(job_id)
        if attempt is not None and (job is None or job.record.attempt.number < attempt):
            # Overtaken: the start this stop is meant for must not succeed later.
            self._stopped_early.add((job_id, attempt))
            self._leases.release(job_id, attempt)
        job = self.get(job_id)
        if attempt is None or job.record.attempt.number == attempt:
            job.stop(reason, grace_s)
            self._publish(job)
        return job.record

    def poll(self) -> None:
        """Follow every active attempt; cheap when there is none."""
        now = time.monotonic()
        for job in self.active():
            job.poll(now)
            if not job.is_active:
                part = job.record.part
                log.info("job %s %s", job.record.job_id, part.state)
                self._leases.release(job.record.job_id, job.record.attempt.number)
            if job.take_news(now):
                self._publish(job)

    def close(self) -> None:
        """The agent ends; attempts go on under their keepers."""
        for job in self._jobs.values():
            job.close()

    def _spawn(self, request: StartRequest) -> LocalJob:
        placement = next(p for p in request.attempt.placements if p.node_id == self._node_id)
        record = JobRecord(
            job_id=request.job_id,
            spec=request.spec,
            attempt=request.attempt,
            part=new_part(self._node_id, self._node, placement.ranks),
            submitted_by=request.submitted_by,
        )
        previous = self._jobs.pop(request.job_id, None)
        if previous is not None:
            previous.close()
        directory = self.directory / request.job_id
        job = LocalJob.create(directory, record)
        command = torchrun_command(
            request.spec,
            request.attempt,
            placement,
            job_id=request.job_id,
            python=self._python,
            directory=str(job.attempt.path),
            cpu_count=usable_cpus(),
        )
        try:
            job.attempt.prepare(request.spec.files, command)
            job.attempt.spawn()
        except BaseException:
            job.remove()
            raise
        job.launched()
        self._jobs[request.job_id] = job
        self._publish(job)
        self._forget_oldest()
        log.info("job %s started by %s", request.job_id, request.submitted_by or "somebody")
        return job

    def _publish(self, job: LocalJob) -> None:
        self._hub.publish(JobChanged(record=job.record))

    def _forget_oldest(self) -> None:
        ended = [job for job in self._jobs.values() if not job.is_active]
        ended.sort(key=lambda job: job.record.attempt.submitted_s)
        for job in ended[: max(0, len(ended) - KEPT_JOBS)]:
            del self._jobs[job.record.job_id]
            job.remove()

    def _lease_of(self, job: LocalJob) -> Lease:
        """The lease of an adopted attempt; on the head its port is bound again."""
        record, placement = job.record, job.placement
        lease = Lease(record.job_id, record.attempt.number, placement.gpus, placement.address, None)
        if placement.node_rank == 0:
            try:
                lease.holder = PortHolder.rebind(placement.address, record.attempt.master_port)
            except OSError:
                log.warning("port %s is not ours any more", record.attempt.master_port)
        return lease
