"""Launcher of a driver: starts, queues, stops and saves jobs through the nodes' agents."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient, ask_each
from jupyter_mntrain.cluster.files.hub_models import bring_hub_model, with_hub_commit
from jupyter_mntrain.cluster.launch.asking import ask_participants, both, find_workplaces
from jupyter_mntrain.cluster.launch.measure import Prober, with_renewed_links
from jupyter_mntrain.cluster.launch.sending import send_project
from jupyter_mntrain.cluster.preflight.before_launch import BeforeLaunch, ToldBefore
from jupyter_mntrain.cluster.preflight.probing import CachedPaths
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch import NodeCommand, torchrun_command
from jupyter_mntrain.launch.gang_start import GangStart
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.launch.retry import PAUSES_S, persist
from jupyter_mntrain.model.api import (
    LONGEST_GRACE_S,
    KillRequest,
    LeaseGrant,
    SaveRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.errors import MntrainError, bad_argument
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    JobState,
    JobView,
    PartStatus,
    Placement,
)
from jupyter_mntrain.model.records.node import FoundWorkplace, NodeInfo
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.resolved import ResolvedJob, resolve
from jupyter_mntrain.plan.software.gpu_builds import refuse_gpu_builds
from jupyter_mntrain.plan.software.versions import refuse_mixed
from jupyter_mntrain.plan.software.workplaces import refuse_lacking, working_in
from jupyter_mntrain.plan.spec_check import check_spec

FIRST_ATTEMPT = 1


class Agreed(NamedTuple):
    """The nodes of a job, and the placement of its ranks."""

    infos: tuple[NodeInfo, ...]
    placements: tuple[Placement, ...]


@dataclass
class AgentLauncher:
    """Starts and ends jobs over the agents of a live view.

    Args:
        live: the live view that nodes are looked up in.
        clock: for the time of submission.
        submitted_by: user and host, for people.
        pauses_s: pause before each retry of a request that got no answer.
        is_checked: whether the doctor looks at the nodes before a launch.
        is_fetched: whether a model of the hub is, if it is nowhere here.
        on_note: receives what is to be said that does not stop the launch.
        on_begin: receives the job before the first node is asked to start it: from then on it may
            run, whatever becomes of this driver.
        known_paths: those between nodes that need not be tried again.
    """

    live: ClusterView
    clock: Clock
    submitted_by: str = ""
    pauses_s: tuple[float, ...] = PAUSES_S
    is_checked: bool = True
    is_fetched: bool = True
    on_note: Callable[[Problem], object] = bool
    on_begin: Callable[[JobView], object] = bool
    known_paths: CachedPaths | None = None

    @property
    def prober(self) -> Prober:
        return Prober(self.live, self.submitted_by)

    async def render(self, spec: JobSpec) -> tuple[NodeCommand, ...]:
        """Render each node's command, exact except for what is only known at launch.

        The job id is ``j-00000000``, and without a port of its own in the spec the port is 0: the
        head's agent chooses a free one.
        """
        check_spec(spec)
        job = self.resolved(spec)
        infos, placements = await self.agreed(job)
        spec, plan = await _planned(job, infos)
        job_id = JobId("j-00000000")
        attempt = self._attempt(placements, plan, spec.port or 0)
        return tuple(
            torchrun_command(
                spec,
                attempt,
                placement,
                job_id=job_id,
                python=info.python or "python",
                directory=f"{info.jobs_directory or 'jobs'}/{job_id}/attempt-{FIRST_ATTEMPT}",
                cpu_count=info.inventory.cpu_count,
                gpus=info.inventory.gpus,
            )
            for placement, info in zip(placements, infos, strict=True)
        )

    async def launch(
        self,
        spec: JobSpec,
        job_id: JobId,
        *,
        project: StagedProject | None = None,
        progress: Progress = SILENT,
    ) -> JobView:
        """Start the job on every participant or on none: after an error nothing runs and nothing is
        leased, except what the error names.

        Args:
            project: its files, if they are on this machine.
        """
        if job_id in self.live.jobs:
            return self.live.jobs[job_id]
        spec, placements, plan = await self._place(spec, progress, project)
        await self._send(spec, project, placements, progress)

        def request(grants: Sequence[LeaseGrant]) -> StartRequest:
            attempt = self._attempt(placements, plan, grants[0].port or 0)
            made = self._request(spec, job_id, attempt)
            self.on_begin(_begun(made))
            return made

        gang = self._gang(spec, job_id, FIRST_ATTEMPT, placements, progress)
        return self._take(await _told(gang, gang.start(request, now=self.clock.time)))

    async def queue(
        self,
        spec: JobSpec,
        job_id: JobId,
        *,
        project: StagedProject | None = None,
        progress: Progress = SILENT,
    ) -> JobView:
        """Queue the job on all of its participants. Its head starts it when everything is free."""
        spec, placements, plan = await self._place(spec, progress, project)
        await self._send(spec, project, placements, progress)
        request = self._request(spec, job_id, self._attempt(placements, plan, 0, number=0))
        self.on_begin(_begun(request))
        gang = self._gang(spec, job_id, 0, placements, progress)
        return self._take(await _told(gang, gang.deposit(lambda client: client.deposit(request))))

    async def _send(
        self,
        spec: JobSpec,
        project: StagedProject | None,
        placements: Sequence[Placement],
        progress: Progress,
    ) -> None:
        """Send the nodes the files of the job's project that they lack."""
        if spec.project is None:
            return
        own = {placement.node_id for placement in placements}
        clients = [self.live.client_of(placement) for placement in placements]
        client_at = self.live.desk.client
        others = [
            client_at(view.address, view.info.node_id, view.info.name)
            for view in self.live.nodes
            if view.info and view.liveness == "up" and view.info.node_id not in own
        ]
        await send_project(spec.project, project, clients, others, progress=progress)

    def _gang(
        self,
        spec: JobSpec,
        job_id: JobId,
        number: int,
        placements: tuple[Placement, ...],
        progress: Progress,
    ) -> GangStart[AgentClient]:
        seats = [(placement, self.live.client_of(placement)) for placement in placements]
        return GangStart(job_id, number, spec, seats, progress, self.pauses_s)

    def _request(self, spec: JobSpec, job_id: JobId, attempt: Attempt) -> StartRequest:
        return StartRequest(
            job_id=job_id, spec=spec, attempt=attempt, submitted_by=self.submitted_by
        )

    def _take(self, records: Sequence[JobRecord]) -> JobView:
        for record in records:
            self.live.take_record(record)
        return self.live.jobs[records[0].job_id]

    async def _place(
        self, spec: JobSpec, progress: Progress, project: StagedProject | None
    ) -> tuple[JobSpec, tuple[Placement, ...], Plan | None]:
        """Check the spec, ask the nodes, choose what it leaves to them, and place the ranks."""
        check_spec(spec)
        job = self.resolved(spec)
        job = job.with_spec(await with_hub_commit(job.program, progress, self.on_note))
        doctor = BeforeLaunch(
            self.live, self.clock, self.known_paths or CachedPaths(self.clock), job
        )
        agreed, told = await both(self.agreed(job, progress), self._told(doctor, project))
        infos, placements = agreed
        if told is not None:
            for note in await doctor.examine(infos, told, progress):
                self.on_note(note)
        renewed = await with_renewed_links(self.prober, infos, spec.participants, progress)
        if renewed != infos:  # another network may be the fastest
            placements = arrange(spec.participants, renewed)
        spec, plan = await _planned(job, renewed)
        await bring_hub_model(
            self.live, job.program, renewed, self.clock, progress, is_fetched=self.is_fetched
        )
        return spec, placements, plan

    async def _told(self, doctor: BeforeLaunch, project: StagedProject | None) -> ToldBefore | None:
        """Ask the nodes for what the doctor checks; ``None`` if it is skipped."""
        return await doctor.ask(project) if self.is_checked else None

    def resolved(self, spec: JobSpec) -> ResolvedJob:
        """Resolve the job's participants to nodes of the live view.

        Raises:
            SpecError: a node is unknown or takes part twice.
        """
        return resolve(spec, [view.info for view in self.live.nodes])

    async def agreed(self, job: ResolvedJob, progress: Progress = SILENT) -> Agreed:
        """Return the participants and their ranks, once each node can run the job.

        Raises:
            MntrainError: what the job itself makes impossible.
        """
        infos = await self._agreeing(job, progress)
        return Agreed(infos, arrange(job.spec.participants, infos))

    async def _agreeing(self, job: ResolvedJob, progress: Progress) -> tuple[NodeInfo, ...]:
        """Ask the participants. Raises SpecError if their versions differ, and RefusedError if one
        lacks the job's interpreter or folder, or its torch cannot use its GPUs.
        """
        infos, found = await both(
            ask_participants(self.live, job.nodes, progress),
            find_workplaces(self.live, job, progress),
        )
        gpus = [participant.gpus for participant in job.spec.participants]
        if found:
            refuse_lacking([(info.name, one) for info, one in zip(infos, found, strict=True)])
            infos = tuple(map(working_in, infos, found))
        if not job.spec.mixed_versions:
            refuse_mixed(infos)
        refuse_gpu_builds(zip(infos, gpus, strict=True))
        return infos

    async def workplaces(self, spec: JobSpec) -> tuple[FoundWorkplace, ...]:
        """Return each participant's interpreter and folder for a job; empty if the agents' own is
        used.

        Raises:
            SpecError, NodeError: a node is unknown, or does not answer.
        """
        return tuple(await find_workplaces(self.live, self.resolved(spec)))

    async def stop(
        self, job_id: JobId, *, reason: str, grace_s: float, progress: Progress = SILENT
    ) -> JobView:
        """End the job everywhere. Return once every reachable participant has accepted the stop.

        ``grace_s=0`` kills at once. The parts' ``leftovers`` name surviving processes.

        Raises:
            JobNotFoundError: no reachable node knows it.
            SpecError: ``grace_s`` is out of range.
        """
        if not 0 <= grace_s <= LONGEST_GRACE_S:
            raise bad_argument("grace_s", grace_s, f"0 to {LONGEST_GRACE_S:.0f} seconds")
        placements = self.live.job(job_id).attempt.placements
        clients = [self.live.client_of(placement) for placement in placements]
        request = StopRequest(reason=reason, grace_s=grace_s)
        told = Count(progress, f"telling the nodes to stop {job_id}", len(clients))

        async def stop(client: AgentClient) -> JobRecord:
            return await persist(lambda: client.stop(job_id, request), pauses_s=self.pauses_s)

        answers = await ask_each(clients, stop, told)
        silent = [answer for answer in answers if isinstance(answer, MntrainError)]
        if len(silent) == len(clients):
            raise silent[0]
        for answer in answers:
            if not isinstance(answer, MntrainError):
                self.live.take_record(answer)
        return self.live.jobs[job_id]

    async def kill_rank(self, job_id: JobId, rank: int, *, reason: str) -> JobView:
        """Kill one rank's process through the agent of its node.

        Raises:
            NodeError: that agent does not answer.
            RefusedError: no process of this rank is running.
        """
        attempt = self.live.job(job_id).attempt
        client = self.live.client_of(next(one for one in attempt.placements if rank in one.ranks))
        request = KillRequest(attempt=attempt.number, reason=reason)
        self.live.take_record(
            await persist(lambda: client.kill_rank(job_id, rank, request), pauses_s=self.pauses_s)
        )
        return self.live.jobs[job_id]

    async def save(self, job_id: JobId, *, is_last: bool, reason: str) -> JobView:
        """Ask the head to have all ranks save; only the head, so that all save the same step."""
        view = self.live.jobs[job_id]
        client = self.live.client_of(view.attempt.head)
        request = SaveRequest(
            key=secrets.token_hex(8), attempt=view.attempt.number, is_last=is_last, reason=reason
        )
        self.live.take_record(
            await persist(lambda: client.save(job_id, request), pauses_s=self.pauses_s)
        )
        return self.live.jobs[job_id]

    def _attempt(
        self,
        placements: tuple[Placement, ...],
        plan: Plan | None,
        port: int,
        *,
        number: int = FIRST_ATTEMPT,
    ) -> Attempt:
        return Attempt(
            number=number,
            placements=placements,
            master_address=placements[0].address,
            master_port=port,
            submitted_s=self.clock.time(),
            plan=plan,
        )


def _begun(request: StartRequest) -> JobView:
    """The job that a request starts or queues, before anybody has answered."""
    state: JobState = "starting" if request.attempt.number else "pending"
    parts = tuple(
        PartStatus(node_id=place.node_id, node=place.node, state=state)
        for place in request.attempt.placements
    )
    spec = msgspec.structs.replace(request.spec, files={})
    return JobView(
        request.job_id, spec, request.attempt, state, parts, submitted_by=request.submitted_by
    )


async def _planned(job: ResolvedJob, infos: tuple[NodeInfo, ...]) -> tuple[JobSpec, Plan | None]:
    """The job with what is chosen by its devices, and by its plan, which may take a second."""
    return await asyncio.to_thread(job.program.planned, infos)


async def _told(gang: GangStart[AgentClient], work: Awaitable[list[JobRecord]]) -> list[JobRecord]:
    """Await the records; an error also says what could not be undone."""
    try:
        return await work
    except MntrainError as error:
        if gang.left:
            error.leave_behind(gang.left)
        raise
