"""Job book: all jobs in which this node takes part, or has taken part."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.directory import topology_line
from jupyter_mntrain.agent.attempt.supervisor import earlier_attempt
from jupyter_mntrain.agent.failure.own_errors import OwnErrors, unexpected
from jupyter_mntrain.agent.jobs.attempt_end import EarlyStops
from jupyter_mntrain.agent.jobs.forgetting import prune
from jupyter_mntrain.agent.jobs.leases import Lease, LeaseBook, lease_of
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.jobs.record_file import read_record
from jupyter_mntrain.agent.jobs.run_checkpoints import refuse_second
from jupyter_mntrain.agent.jobs.session_ranks import forks_for
from jupyter_mntrain.agent.listeners import Listeners
from jupyter_mntrain.agent.machine.devices.limits import usable_cpus
from jupyter_mntrain.agent.machine.software.pythons import has_safe_path, python_of
from jupyter_mntrain.launch import NodeCommand, torchrun_command
from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import JobChanged, JobDeleted, StartRequest, StopRequest
from jupyter_mntrain.model.environment import GPU_MEMORY_VARIABLE
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import private_directory
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.events import Launched, Warned
from jupyter_mntrain.model.lifecycle.restarts import first_start, is_same_start
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import JobRecord, JobSpec, Placement
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.plan.spec_check import check_name
from jupyter_mntrain.telemetry.gpus import GpuReader

log = logging.getLogger("mntrain.agent")

KEPT_JOBS = tunables.count("agent.jobs_kept")


@dataclass(kw_only=True)
class JobBook:
    """Starts, stops and polls jobs, and stores them under ``directory``.

    Args:
        python: interpreter that ranks run under.
        gpus: tells, at the end of an attempt, whether their memory is free again.
        offered_memory: bytes of each GPU that ranks may use; ``None`` = all.
        errors: the agent's own.
        on_release: called once a job that has ended has given its lease back.
    """

    directory: Path
    node_id: NodeId
    node: str
    python: str
    leases: LeaseBook
    listeners: Listeners
    gpus: GpuReader
    offered_memory: Callable[[], int | None] = lambda: None
    errors: OwnErrors = field(default_factory=OwnErrors)
    on_release: Callable[[], object] = bool
    _jobs: dict[JobId, LocalJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._early_stops = EarlyStops(self.leases.clock)
        private_directory(self.directory)

    def load(self) -> None:
        """Load the jobs that an earlier agent stored, and adopt running attempts."""
        for path in sorted(self.directory.glob("j-*")):
            try:
                job = LocalJob(path, read_record(path), self.gpus, errors=self.errors)
                is_started = job.is_active and not job.record.is_queued
                lease = lease_of(job.record, job.placement) if is_started else None
            except (OSError, StopIteration, msgspec.MsgspecError) as error:
                log.warning("job in %s is not readable and was ignored: %s", path, error)
                continue
            self._jobs[job.record.job_id] = job
            if lease is not None:
                log.info("adopting job %s", job.record.job_id)
                self.leases.restore(lease)

    def all(self) -> Collection[LocalJob]:
        return self._jobs.values()

    def active(self) -> list[LocalJob]:
        return [job for job in self._jobs.values() if job.is_active]

    def get(self, job_id: JobId) -> LocalJob:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise self.not_found(job_id) from None

    def of_run(self, run: JobId) -> list[LocalJob]:
        """Return the jobs of a run that are known here."""
        return [job for job in self._jobs.values() if job.record.run == run]

    def drop(self, job: LocalJob) -> None:
        """Forget a job, but leave its files."""
        del self._jobs[job.record.job_id]
        job.close()
        self.listeners.publish(JobDeleted(job_id=job.record.job_id))

    def not_found(self, job_id: JobId) -> JobNotFoundError:
        return JobNotFoundError(
            f"job {job_id} is not known here", fix="see 'jobs' for the known ones", node=self.node
        )

    def start(self, request: StartRequest) -> LocalJob:
        """Start this node's part of a job. Idempotent: a repeated request changes nothing.

        Raises:
            RefusedError: the lease expired, was released or is for other GPUs; the job was
                stopped before this request arrived; another attempt is running; or the part
                cannot be started, and nothing of it is left.
            SpecError: the request itself is invalid.
        """
        job_id, number = request.job_id, request.attempt.number
        known = self._jobs.get(job_id)
        if known is not None and is_same_start(known.record.attempt, request.attempt):
            return known
        self._refuse_out_of_turn(request, known)
        placement = self._own_placement(request)
        lease = self.leases.find(job_id, number)
        if lease is None:
            raise RefusedError(
                f"job {job_id} has no lease here",
                kind=Kind.NO_LEASE,
                fix="launch it again",
                node=self.node,
            )
        self._refuse_unleased(request, placement, lease)
        self.leases.start(job_id, number)
        try:
            with self._refusing("cannot start its part", Kind.NOT_STARTED):
                return self._spawn(request, placement, known)
        except BaseException:
            self.leases.release(job_id, number)
            raise

    def deposit(self, request: StartRequest) -> LocalJob:
        """Store a queued job until its head can start it. Idempotent.

        Raises:
            RefusedError: the job was stopped before this request arrived, or cannot be stored.
            SpecError: the request itself is invalid.
        """
        known = self._jobs.get(request.job_id)
        if known is not None:
            return known
        self._refuse_out_of_turn(request, known)
        record = self._record(request, self._own_placement(request))
        is_head = record.attempt.head.node_id == self.node_id
        if is_head:
            plan = first_start(record.attempt.submitted_s)
            record = msgspec.structs.replace(record, restart=plan)
        directory = self.directory / request.job_id
        job = LocalJob(directory, record, self.gpus, errors=self.errors)
        with self._refusing("cannot store the job", Kind.NOT_STARTED):
            private_directory(directory)
            try:
                job.file.write()
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
        self._jobs[request.job_id] = job
        self.tell(job)
        log.info("job %s queued by %s", request.job_id, request.submitted_by)
        return job

    def queued(self) -> list[JobRecord]:
        """Return records of the jobs that wait for their first attempt."""
        return [job.record for job in self.active() if job.record.is_queued]

    def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        """End this node's part. Does nothing for an older attempt or one that has ended."""
        job, attempt = self._jobs.get(job_id), request.attempt
        is_whole = attempt is None  # the job, and not one attempt of it
        if job is not None and is_whole:
            job.give_up()
        is_early = attempt is not None and job is not None and job.record.attempt.number < attempt
        if job is None or is_early or (is_whole and not job.is_active):
            # The stop overtook its start, which must not succeed when it arrives.
            self._early_stops.remember(job_id, attempt)
            self.leases.release_unstarted(job_id, attempt)
        job = self.get(job_id)
        if attempt is None or job.record.attempt.number == attempt:
            job.stop(request.reason, request.grace_s, after_failure=request.after_failure)
            self.tell(job)
        return job.record

    def poll(self) -> bool:
        """Poll every attempt that is not final; return whether any has more to read. Cheap if there
        is none.
        """
        now, is_behind = time.monotonic(), False
        for job in list(self._jobs.values()):
            if job.is_final and not job.file.has_news:
                continue
            try:
                is_behind |= job.poll(now)
            except Exception as error:  # noqa: BLE001 - ends this part only; logged with an id
                self.fail(job, error, "cannot follow its part")
            if job.file.take_news(now):
                self.tell(job)
        return is_behind

    def rest(self) -> None:
        """Release the processes, files and memory of jobs that have ended. Cheap."""
        for job in self._jobs.values():
            if job.is_final:
                job.rest()

    def close(self) -> None:
        """Close all files. Attempts continue under their supervisors."""
        for job in self._jobs.values():
            job.close()

    def fail(self, job: LocalJob, error: Exception, doing: str) -> None:
        """End a part after an unexpected error of this agent.

        Args:
            doing: what failed, for people.
        """
        try:
            job.fail(unexpected(error, doing, node=self.node))
        except Exception:  # the other jobs must go on; it is logged
            log.exception("job %s cannot be ended", job.record.job_id)

    @contextmanager
    def _refusing(self, doing: str, kind: Kind) -> Iterator[None]:
        """Turn unexpected errors into refusals, with an id that is also in the log."""
        try:
            yield
        except MntrainError:
            raise
        except Exception as error:
            problem = unexpected(error, doing, node=self.node, kind=kind)
            raise RefusedError.of(msgspec.structs.replace(problem, node=self.node)) from error

    def tell(self, job: LocalJob) -> None:
        """Notify drivers about a job, and release its lease if it has ended."""
        record = job.record
        if not job.is_active and self.leases.release(record.job_id, record.attempt.number):
            log.info("job %s %s", record.job_id, record.part.state)
            self.on_release()  # who hears that it has ended knows already what is free
        self.listeners.publish(JobChanged(record=record))

    def _refuse_out_of_turn(self, request: StartRequest, known: LocalJob | None) -> None:
        check_name(request.spec.name)
        job_id, number = request.job_id, request.attempt.number
        if known is not None and known.record.attempt.number >= number:
            newest = known.record.attempt.number
            why = f"attempt {newest} is newer" if newest > number else "its number is taken"
            cause = f"attempt {number} of job {job_id} cannot start: {why}"
            raise RefusedError(cause, kind=Kind.OUT_OF_TURN, node=self.node)
        if known is not None and known.is_active and not known.record.is_queued:
            raise RefusedError(
                f"attempt {known.record.attempt.number} of job {job_id} is still running here",
                kind=Kind.OUT_OF_TURN,
                fix=f"stop it first: stop {job_id}",
                node=self.node,
            )
        if self._early_stops.includes(job_id, number):
            cause = f"job {job_id} was stopped before it started"
            raise RefusedError(cause, kind=Kind.OUT_OF_TURN, node=self.node)

    def _own_placement(self, request: StartRequest) -> Placement:
        own = [p for p in request.attempt.placements if p.node_id == self.node_id]
        if len(own) != 1 or own[0].nproc < 1:
            raise SpecError(
                f"the attempt lists this node {len(own)} times, or without processes",
                fix="list every participant exactly once, with at least one process",
                node=self.node,
            )
        return own[0]

    def _refuse_unleased(self, request: StartRequest, placement: Placement, lease: Lease) -> None:
        is_head = placement.node_rank == 0
        has_port = not is_head or request.attempt.master_port == lease.port
        has_interface = lease.interface in (None, placement.interface)
        if has_port and has_interface and set(placement.gpus) <= set(lease.gpus):
            return
        raise RefusedError(
            f"job {request.job_id} starts with GPUs, a port or an interface not leased to it",
            kind=Kind.NO_LEASE,
            fix="launch it again",
            node=self.node,
        )

    def _spawn(
        self, request: StartRequest, placement: Placement, previous: LocalJob | None
    ) -> LocalJob:
        record = self._record(request, placement, previous)
        refuse_second(record, (job.record for job in self.active()))
        directory = self.directory / request.job_id
        samples = previous.samples if previous else None
        job = LocalJob(directory, record, self.gpus, samples=samples, errors=self.errors)
        python, activated = python_of(request.spec, self.python)
        command = torchrun_command(
            request.spec,
            request.attempt,
            placement,
            job_id=request.job_id,
            python=python,
            directory=str(job.attempt.path),
            cpu_count=usable_cpus(),
            gpus=self.gpus.read() if placement.gpus else (),
            of_node=os.environ,
            has_safe_path=has_safe_path(python),
        )
        command.environment.update(activated)
        command = self._forked(request.spec, command)
        if (offered := self.offered_memory()) is not None:
            command.environment[GPU_MEMORY_VARIABLE] = str(offered)
        heading = topology_line(request.job_id, request.attempt)
        run = checkpoints_of_run(self.directory, request.spec.run_of(request.job_id)).parent
        try:
            private_directory(run)  # scripts make only the folder in it
            job.attempt.prepare(request.spec, command, heading=heading, sent_s=request.sent_s)
            job.gathering.note_at_launch()
            # Stored before anything runs: the next agent finds it if this one is killed now.
            job.file.write()
            job.attempt.spawn()
        except BaseException:
            shutil.rmtree(job.attempt.path if previous else directory, ignore_errors=True)
            if previous is not None:
                previous.file.write()
            raise
        job.change(Launched(time_s=job.now_s()))
        if (lost := _without_earlier_work(request, job.attempt.path)) is not None:
            job.change(Warned(problem=lost))
        self._jobs[request.job_id] = job
        self.tell(job)
        prune(self, KEPT_JOBS)
        log.info("job %s started by %s", request.job_id, request.submitted_by or "an unknown user")
        return job

    def _forked(self, spec: JobSpec, command: NodeCommand) -> NodeCommand:
        """Return a command that the session forks which the job is launched into, if it can."""
        session = self._jobs.get(spec.session) if spec.session is not None else None
        if session is None:
            return command
        python = forks_for(session.record, session.attempt, command.environment)
        if python is None:
            return command
        return msgspec.structs.replace(command, argv=(str(python), *command.argv[1:]))

    def _record(
        self, request: StartRequest, placement: Placement, previous: LocalJob | None = None
    ) -> JobRecord:
        return JobRecord(
            job_id=request.job_id,
            spec=request.spec,
            attempt=request.attempt,
            part=new_part(self.node_id, self.node, placement.ranks),
            submitted_by=request.submitted_by,
            members=previous.record.members
            if previous
            else tuple(place.node_id for place in request.attempt.placements),
            label=previous.record.label if previous else JobLabel(),
            was_queued=previous.record.was_queued if previous else request.attempt.number == 0,
        )


def _without_earlier_work(request: StartRequest, attempt: Path) -> Problem | None:
    """Return a warning if a restarted script has no files of an earlier attempt on this node."""
    spec, number = request.spec, request.attempt.number
    is_own = not spec.needs_package and spec.workdir is None
    if not is_own or number == 1 or earlier_attempt(attempt) is not None:
        return None
    return Problem(
        kind=Kind.NO_FILE,
        cause="no rank of an earlier attempt ran here: what the script wrote in its folder then is "
        "on other nodes",
        fix=fix_of(Kind.NO_FILE, "earlier"),
    )
