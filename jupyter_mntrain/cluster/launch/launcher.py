"""Launcher of a driver: starts, queues, stops and saves jobs through the nodes' agents."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.launch.sending import send_project
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch import NodeCommand, torchrun_command
from jupyter_mntrain.launch.gang_start import GangStart, all_or_error, workplace_of
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
from jupyter_mntrain.model.errors import MntrainError, NodeError, bad_argument
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    JobView,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.node import FoundWorkplace, NodeInfo, Workplace
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan.arrange import arrange, find_participants
from jupyter_mntrain.plan.spec_check import check_spec
from jupyter_mntrain.plan.versions import refuse_mixed
from jupyter_mntrain.plan.workplaces import refuse_lacking, working_in
from jupyter_mntrain.recipe.combinations import check_cards
from jupyter_mntrain.recipe.stored import recipe_of

FIRST_ATTEMPT = 1


@dataclass
class AgentLauncher:
    """Starts and ends jobs over the agents of a live view.

    Args:
        live: the live view that nodes are looked up in.
        clock: for the time of submission.
        submitted_by: user and host, for people.
        pauses_s: pause before each retry of a request that got no answer.
    """

    live: ClusterView
    clock: Clock
    submitted_by: str = ""
    pauses_s: tuple[float, ...] = PAUSES_S

    async def render(self, spec: JobSpec) -> tuple[NodeCommand, ...]:
        """Render each node's command, exact except for what is only known at launch.

        The job id is ``j-00000000``, and without a port of its own in the spec the port is 0: the
        head's agent chooses a free one.
        """
        check_spec(spec)
        infos = await self._agreeing(spec)
        placements = arrange(spec.participants, infos)
        job_id = JobId("j-00000000")
        attempt = self._attempt(placements, spec.port or 0)
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
        """Start on every participant, or on none.

        Args:
            project: its files, if they are on this machine.

        After an error nothing runs and nothing is leased, except what the error names.
        """
        if job_id in self.live.jobs:
            return self.live.jobs[job_id]
        placements = await self._place(spec, progress)
        await self._send(spec, project, placements, progress)

        def request(grants: Sequence[LeaseGrant]) -> StartRequest:
            return self._request(spec, job_id, self._attempt(placements, grants[0].port or 0))

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
        placements = await self._place(spec, progress)
        await self._send(spec, project, placements, progress)
        request = self._request(spec, job_id, self._attempt(placements, 0, number=0))
        gang = self._gang(spec, job_id, 0, placements, progress)
        return self._take(await _told(gang, gang.deposit(lambda client: client.deposit(request))))

    async def _send(
        self,
        spec: JobSpec,
        project: StagedProject | None,
        placements: Sequence[Placement],
        progress: Progress,
    ) -> None:
        """Send the nodes what they lack of the job's project."""
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

    async def _place(self, spec: JobSpec, progress: Progress) -> tuple[Placement, ...]:
        """Check the spec, ask the nodes, and place the ranks."""
        check_spec(spec)
        return arrange(spec.participants, await self._agreeing(spec, progress))

    async def _agreeing(self, spec: JobSpec, progress: Progress = SILENT) -> tuple[NodeInfo, ...]:
        """Ask the participants; raises SpecError if their versions differ, RefusedError if one
        lacks what the job runs in, and RecipeError if a GPU lacks what its recipe needs.
        """
        infos = await self.ask_participants(spec.participants, progress)
        if (asked := workplace_of(spec)) is not None:
            found = await self._look(infos, asked, progress)
            refuse_lacking([(info.name, one) for info, one in zip(infos, found, strict=True)])
            infos = tuple(map(working_in, infos, found))
        if not spec.mixed_versions:
            refuse_mixed(infos)
        if (recipe := recipe_of(spec)) is not None:
            gpus = [participant.gpus for participant in spec.participants]
            check_cards(recipe, zip(infos, gpus, strict=True))
        return infos

    async def _look(
        self, infos: Sequence[NodeInfo], asked: Workplace, progress: Progress = SILENT
    ) -> list[FoundWorkplace]:
        """What each node has of what the job runs in."""
        told = Count(progress, "looking for what the job runs in", len(infos))

        async def look(info: NodeInfo) -> FoundWorkplace:
            client = self.live.client_at(info.node_id)
            if client is None:
                raise NodeError(
                    "does not answer any more",
                    kind=Kind.SILENT,
                    fix="start it again, or omit it",
                    node=info.name,
                )
            found = await client.workplace(asked)
            told.one()
            return found

        return all_or_error(await asyncio.gather(*map(look, infos), return_exceptions=True))

    async def workplaces(self, spec: JobSpec) -> tuple[FoundWorkplace, ...]:
        """What each participant has of what a job runs in; empty if that is the agents' own.

        Raises:
            SpecError, NodeError: a node is unknown, or does not answer.
        """
        if (asked := workplace_of(spec)) is None:
            return ()
        return tuple(await self._look(await self.ask_participants(spec.participants), asked))

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
        told = Count(progress, "telling the nodes to stop", len(clients))

        async def stop(client: AgentClient) -> JobRecord:
            record = await persist(lambda: client.stop(job_id, request), pauses_s=self.pauses_s)
            told.one()
            return record

        answers = await asyncio.gather(*map(stop, clients), return_exceptions=True)
        silent = [answer for answer in answers if isinstance(answer, MntrainError)]
        if len(silent) == len(clients):
            raise silent[0]
        for record in all_or_error([one for one in answers if one not in silent]):
            self.live.take_record(record)
        return self.live.jobs[job_id]

    async def kill_rank(self, job_id: JobId, rank: int, *, reason: str) -> JobView:
        """Kill one rank's process through the agent of its node.

        Raises:
            NodeError: that agent does not answer.
            RefusedError: no process of this rank is running.
        """
        attempt = self.live.job(job_id).attempt
        place = next(one for one in attempt.placements if rank in one.ranks)
        client = self.live.client_of(place)
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

    async def ask_participants(
        self, participants: Sequence[Participant], progress: Progress = SILENT
    ) -> tuple[NodeInfo, ...]:
        """Ask each participant for its current state; the live view only supplies addresses.

        Raises:
            SpecError: a node is unknown or named twice.
            NodeError: a node does not answer, or two machines claim its id.
        """
        views = [view for view in self.live.nodes if view.info]
        chosen = find_participants(participants, [view.info for view in views if view.info])
        by_id = {view.info.node_id: view for view in views if view.info}
        for node in chosen:
            refuse_unusable(by_id[node.node_id])
        client_at = self.live.desk.client
        clients = [client_at(by_id[n.node_id].address, n.node_id, n.name) for n in chosen]
        asked = Count(progress, "asking the nodes", len(clients))

        async def ask(client: AgentClient) -> NodeInfo:
            info = await client.node_info()
            asked.one()
            return info

        answers = await asyncio.gather(*map(ask, clients), return_exceptions=True)
        return tuple(all_or_error(answers))

    def _attempt(
        self, placements: tuple[Placement, ...], port: int, *, number: int = FIRST_ATTEMPT
    ) -> Attempt:
        return Attempt(
            number=number,
            placements=placements,
            master_address=placements[0].address,
            master_port=port,
            submitted_s=self.clock.time(),
        )


def refuse_unusable(view: NodeView) -> None:
    """Refuse a node that is lost, cannot be talked to, or whose id two machines claim."""
    is_refused = view.liveness == "connecting" and view.problem is not None
    if view.is_conflict or view.liveness == "lost" or is_refused:
        problem = view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
        fix = problem.fix or "start it again, or omit it"
        raise NodeError(problem.cause, kind=problem.kind, fix=fix, node=view.name)


async def _told(gang: GangStart[AgentClient], work: Awaitable[list[JobRecord]]) -> list[JobRecord]:
    """Await the records; an error also says what could not be undone."""
    try:
        return await work
    except MntrainError as error:
        if gang.left:
            error.leave_behind(gang.left)
        raise
