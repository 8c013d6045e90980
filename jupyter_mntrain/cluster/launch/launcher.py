"""Launching through agents: lease on every participant, then start on every one, or on none."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.agents.retry import persist
from jupyter_mntrain.cluster.progress import SILENT, Count, Progress
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch import Launcher, NodeCommand, torchrun_command
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import (
    LEASE_EXPIRY_S,
    LeaseGrant,
    LeaseRequest,
    SaveRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import SILENCES, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Attempt,
    JobRecord,
    JobSpec,
    JobView,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan import arrange, check_spec, find_participants, refuse_mixed

T = TypeVar("T")

FIRST_ATTEMPT = 1

RENEW_AFTER_S = LEASE_EXPIRY_S / 3
"""If leasing took this long somewhere, the others' leases are renewed before the start."""

ROLLBACK_S = tunables.seconds("launch.rollback_timeout_s")

ROLLBACK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _Gang:
    """The participants of one launch, in node-rank order."""

    job_id: JobId
    spec: JobSpec
    placements: tuple[Placement, ...]
    clients: tuple[AgentClient, ...]
    progress: Progress


class AgentLauncher(Launcher):
    """Launches over the agents of a live view.

    Args:
        live: where nodes are looked up.
        clock: for the time of submission.
        submitted_by: for people: who and where.
    """

    def __init__(self, live: ClusterView, *, clock: Clock, submitted_by: str = "") -> None:
        self._live = live
        self._clock = clock
        self._submitted_by = submitted_by

    async def render(self, spec: JobSpec) -> tuple[NodeCommand, ...]:
        """Each node's command, exact but for what is only known at launch.

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
            )
            for placement, info in zip(placements, infos, strict=True)
        )

    async def launch(self, spec: JobSpec, job_id: JobId, *, progress: Progress = SILENT) -> JobView:
        if job_id in self._live.jobs:
            return await self.status(job_id)
        gang = await self._gang(spec, job_id, progress)
        try:
            grants = await self._lease(gang)
            records = await self._start(gang, grants)
        except BaseException as error:  # Ctrl-C too: what was taken is given back, then it goes on
            left = await asyncio.shield(_give_back(gang))
            if left and isinstance(error, MntrainError):
                error.leave_behind(left)
            raise
        for record in records:
            self._live.take_record(record)
        return roll_up(records)

    async def queue(self, spec: JobSpec, job_id: JobId, *, progress: Progress = SILENT) -> JobView:
        """Leave the job with all of its participants; its head starts it when all are free."""
        gang = await self._gang(spec, job_id, progress)
        request = StartRequest(
            job_id=job_id,
            spec=spec,
            attempt=self._attempt(gang.placements, 0, number=0),
            submitted_by=self._submitted_by,
        )
        try:
            # The head last: it begins at once, and the others must know the job by then.
            for some in (slice(1, None), slice(0, 1)):
                part = replace(gang, placements=gang.placements[some], clients=gang.clients[some])
                records = await _on_all(
                    part, "queueing it on the nodes", lambda client, _: client.deposit(request)
                )
                for record in records:
                    self._live.take_record(record)
        except BaseException:  # Ctrl-C too: nobody is left with a job that others do not know
            await asyncio.shield(self._unqueue(gang))
            raise
        return self._live.jobs[job_id]

    async def _gang(self, spec: JobSpec, job_id: JobId, progress: Progress) -> _Gang:
        """Who takes part and where, from a spec that was checked and nodes that were asked."""
        check_spec(spec)
        infos = await self._agreeing(spec, progress)
        placements = arrange(spec.participants, infos)
        clients = tuple(self._live.client_of(placement) for placement in placements)
        return _Gang(job_id, spec, placements, clients, progress)

    async def _agreeing(self, spec: JobSpec, progress: Progress = SILENT) -> tuple[NodeInfo, ...]:
        """The participants; raises SpecError where they have other versions than each other."""
        infos = await self.ask_participants(spec.participants, progress)
        if not spec.mixed_versions:
            refuse_mixed(infos)
        return infos

    async def _unqueue(self, gang: _Gang) -> None:
        stop = StopRequest(reason="not every node could be reached")

        async def tell(client: AgentClient) -> None:
            with suppress(MntrainError):
                await persist(lambda: client.stop(gang.job_id, stop), kinds=SILENCES)

        await asyncio.gather(*map(tell, gang.clients))

    async def status(self, job_id: JobId) -> JobView:
        placements = self._placements(job_id)
        clients = [self._live.client_of(placement) for placement in placements]
        await _each(clients, lambda client: client.job(job_id), self._live.take_record)
        return self._live.jobs[job_id]

    async def stop(
        self, job_id: JobId, *, reason: str, grace_s: float, progress: Progress = SILENT
    ) -> JobView:
        clients = [self._live.client_of(placement) for placement in self._placements(job_id)]
        request = StopRequest(reason=reason, grace_s=grace_s)

        told = Count(progress, "telling the nodes to stop", len(clients))

        async def stop(client: AgentClient) -> JobRecord:
            record = await persist(lambda: client.stop(job_id, request))
            told.one()
            return record

        errors = await _each(clients, stop, self._live.take_record)
        if len(errors) == len(clients):
            raise errors[0]
        return self._live.jobs[job_id]

    async def save(self, job_id: JobId, *, is_last: bool, reason: str) -> JobView:
        """Ask the head to have all ranks save; it alone passes it on, for all at the same step."""
        view = self._live.jobs[job_id]
        client = self._live.client_of(view.attempt.head)
        request = SaveRequest(
            key=secrets.token_hex(8), attempt=view.attempt.number, is_last=is_last, reason=reason
        )
        self._live.take_record(await persist(lambda: client.save(job_id, request)))
        return self._live.jobs[job_id]

    async def ask_participants(
        self, participants: Sequence[Participant], progress: Progress = SILENT
    ) -> tuple[NodeInfo, ...]:
        """What each participant has now, from itself; the live view only says where it is.

        Raises:
            SpecError: a node is unknown or takes part twice.
            NodeError: a node does not answer, or its id is claimed by two machines.
        """
        views = [view for view in self._live.nodes if view.info]
        chosen = find_participants(participants, [view.info for view in views if view.info])
        by_id = {view.info.node_id: view for view in views if view.info}
        for node in chosen:
            refuse_unusable(by_id[node.node_id])
        clients = [self._live.client(by_id[n.node_id].address, n.node_id, n.name) for n in chosen]
        asked = Count(progress, "asking the nodes", len(clients))

        async def ask(client: AgentClient) -> NodeInfo:
            info = await client.node_info()
            asked.one()
            return info

        answers = await asyncio.gather(*map(ask, clients), return_exceptions=True)
        return tuple(_all_or_error(answers))

    async def _lease(self, gang: _Gang) -> list[LeaseGrant]:
        begun = self._clock.monotonic()

        def lease(client: AgentClient, place: Placement) -> Awaitable[LeaseGrant]:
            return client.lease(_lease_request(gang, place))

        grants = await _on_all(gang, "leasing GPUs and ports", lease)
        if self._clock.monotonic() - begun > RENEW_AFTER_S:
            await _on_all(gang, "renewing the leases", lease)
        return grants

    async def _start(self, gang: _Gang, grants: Sequence[LeaseGrant]) -> list[JobRecord]:
        port = grants[0].port
        if port is None:
            raise RefusedError(
                "did not lease a port for the rendezvous",
                fix="install the same version of jupyter-mntrain on all nodes",
                node=gang.placements[0].node,
            )
        request = StartRequest(
            job_id=gang.job_id,
            spec=gang.spec,
            attempt=self._attempt(gang.placements, port),
            submitted_by=self._submitted_by,
        )

        def start(client: AgentClient, _: Placement) -> Awaitable[JobRecord]:
            return client.start(msgspec.structs.replace(request, sent_s=self._clock.time()))

        return await _on_all(gang, "starting torchrun", start)

    def _attempt(
        self, placements: tuple[Placement, ...], port: int, *, number: int = FIRST_ATTEMPT
    ) -> Attempt:
        return Attempt(
            number=number,
            placements=placements,
            master_address=placements[0].address,
            master_port=port,
            submitted_s=self._clock.time(),
        )

    def _placements(self, job_id: JobId) -> tuple[Placement, ...]:
        view = self._live.jobs.get(job_id)
        if view is None:
            raise JobNotFoundError(f"no reachable node knows job {job_id}", fix="see: mntrain jobs")
        return view.attempt.placements


def refuse_unusable(view: NodeView) -> None:
    """Raise why a node cannot take part, if it cannot."""
    if view.is_conflict or view.liveness == "lost":
        problem = view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
        fix = problem.fix or "start it again, or omit it"
        raise NodeError(problem.cause, kind=problem.kind, fix=fix, node=view.name)


def _lease_request(gang: _Gang, placement: Placement) -> LeaseRequest:
    is_head = placement.node_rank == 0
    return LeaseRequest(
        job_id=gang.job_id,
        attempt=FIRST_ATTEMPT,
        ranks=placement.nproc,
        gpus=placement.gpus,
        interface=placement.interface,
        hold_port=(gang.spec.port or 0) if is_head else None,
    )


async def _on_all(
    gang: _Gang, what: str, ask: Callable[[AgentClient, Placement], Awaitable[T]]
) -> list[T]:
    """Ask all participants at once, each to its end, again where a reply was lost."""
    answered = Count(gang.progress, what, len(gang.clients))

    async def persistently(client: AgentClient, placement: Placement) -> T:
        answer = await persist(lambda: ask(client, placement))
        answered.one()
        return answer

    answers = await asyncio.gather(
        *map(persistently, gang.clients, gang.placements), return_exceptions=True
    )
    return _all_or_error(answers)


def _all_or_error(answers: Sequence[T | BaseException]) -> list[T]:
    """Every answer, or the error that tells most: a refusal says more than a silence."""
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, NodeError))
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _each(
    clients: Sequence[AgentClient],
    ask: Callable[[AgentClient], Awaitable[JobRecord]],
    take: Callable[[JobRecord], None],
) -> list[MntrainError]:
    """Ask all participants that can be reached; the errors of the others."""
    answers = await asyncio.gather(*map(ask, clients), return_exceptions=True)
    errors = []
    for answer in answers:
        if isinstance(answer, MntrainError):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            take(answer)
    return errors


async def _give_back(gang: _Gang) -> list[str]:
    """Undo a launch on every participant; what could not be undone, in words."""
    undone = Count(gang.progress, "releasing the leases", len(gang.clients))

    async def give_back(place: Placement, client: AgentClient) -> str | None:
        left = await _give_back_one(gang, place.node, client)
        undone.one()
        return left

    left = await asyncio.gather(*map(give_back, gang.placements, gang.clients))
    return [one for one in left if one]


async def _give_back_one(gang: _Gang, node: str, client: AgentClient) -> str | None:
    job_id = gang.job_id
    request = StopRequest(reason="the launch failed", grace_s=0.0, attempt=FIRST_ATTEMPT)
    try:
        try:
            # Also where nothing was started: a start that is still under way is refused then.
            record = await persist(lambda: client.stop(job_id, request), kinds=SILENCES)
            if not await _is_over(client, record):
                return f"{node} is still stopping its part; see: mntrain status {job_id}"
        except JobNotFoundError:
            pass
        await persist(lambda: client.release(job_id, FIRST_ATTEMPT), kinds=SILENCES)
    except NodeError:
        return (
            f"{node} does not answer: its leases expire in {LEASE_EXPIRY_S:g} s, "
            f"to end what it may have started, run mntrain stop {job_id}"
        )
    except MntrainError as error:
        return f"{node}: {error.cause}"
    return None


async def _is_over(client: AgentClient, record: JobRecord) -> bool:
    for _ in range(int(ROLLBACK_S / ROLLBACK_POLL_S)):
        if record.part.state in TERMINAL:
            return True
        await asyncio.sleep(ROLLBACK_POLL_S)
        record = await client.job(record.job_id)
    return record.part.state in TERMINAL
