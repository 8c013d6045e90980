"""Gang start: starts an attempt on all of its nodes or on none.

A launch (from a driver), the queue and a restart (both from the head's agent) share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.retry import PAUSES_S, persist
from jupyter_mntrain.model.api import (
    LEASE_EXPIRY_S,
    LeaseGrant,
    LeaseRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import MAYBE_DONE, SILENCES
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobSpec, Placement
from jupyter_mntrain.model.records.node import Workplace

RENEW_AFTER_S = LEASE_EXPIRY_S / 3
"""If leasing took this long, all leases are renewed before the start."""

ROLLBACK_S = 5.0
"""Timeout for ending the parts that a failed launch has started."""

ROLLBACK_POLL_S = 0.1
"""Interval of asking whether the parts of a failed launch have ended."""


class GangMember(Protocol):
    """The agent of one participant. Every method raises MntrainError, and may be repeated."""

    async def lease(self, request: LeaseRequest) -> LeaseGrant: ...

    async def start(self, request: StartRequest) -> JobRecord: ...

    async def job(self, job_id: JobId) -> JobRecord: ...

    async def stop(self, job_id: JobId, request: StopRequest) -> JobRecord: ...

    async def release(self, job_id: JobId, attempt: int) -> None: ...


T = TypeVar("T")
M = TypeVar("M", bound=GangMember)
Seat = tuple[Placement, M]


@dataclass
class GangStart(Generic[M]):
    """One try to start an attempt.

    Args:
        number: the attempt's; 0 to queue the job.
        seats: all participants with their agents, in node-rank order.
        progress: receives the number of nodes that have answered.
        pauses_s: pause before each retry of a request that got no answer.
        is_repeated: the caller itself retries, so leases and releases are requested once.
    """

    job_id: JobId
    number: int
    spec: JobSpec
    seats: Sequence[Seat[M]]
    progress: Progress = SILENT
    pauses_s: tuple[float, ...] = PAUSES_S
    is_repeated: bool = False
    silent: set[NodeId] = field(default_factory=set)
    """Nodes that did not answer the request for a lease."""
    asked: list[Placement] = field(default_factory=list)
    """Nodes that may hold leases or processes of the attempt."""
    is_begun: bool = False
    """Whether a node may have started its part."""
    left: list[str] = field(default_factory=list)
    """What could not be undone after a failure, for people."""

    @property
    def _lease_pauses_s(self) -> tuple[float, ...]:
        return () if self.is_repeated else self.pauses_s

    async def start(
        self,
        request: Callable[[Sequence[LeaseGrant]], StartRequest],
        *,
        now: Clock,
        head_last: bool = False,
    ) -> list[JobRecord]:
        """Lease on every node in turn, then start on all of them.

        Args:
            request: makes the request from the grants, which are in node-rank order.
            now: source of the time at which each request is sent.
            head_last: start the head once all others have started.

        Raises:
            MntrainError: why it did not start; :attr:`left` says what could not be undone.
        """

        async def work() -> list[JobRecord]:
            made = request(await self._lease_in_turn())
            return await self._start(
                f"starting torchrun of {made.job_id}",  # whoever is cut off now finds it by this
                lambda member: member.start(msgspec.structs.replace(made, sent_s=now())),
                head_last=head_last,
            )

        return await self._or_undo(work())

    async def deposit(self, ask: Callable[[M], Awaitable[JobRecord]]) -> list[JobRecord]:
        """Queue a job on all of its nodes; on the head last, because it may start the job at once.

        Raises:
            MntrainError: as for :meth:`start`.
        """
        return await self._or_undo(
            self._start("queueing the job on the nodes", ask, head_last=True)
        )

    async def _or_undo(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except BaseException:  # also Ctrl-C: release the leases, then raise it again
            self.left = await asyncio.shield(self._undo())
            raise

    async def _lease_in_turn(self) -> list[LeaseGrant]:
        """Lease in order of node ids, up to the first refusal. If two jobs want the same nodes,
        one is refused at once, instead of each holding what the other needs.
        """
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        count = Count(self.progress, "leasing GPUs and ports", len(self.seats))
        silence: NodeError | None = None
        grants: dict[NodeId, LeaseGrant] = {}
        for seat in sorted(self.seats, key=lambda seat: seat[0].node_id):
            place = seat[0]
            self.asked.append(place)
            try:
                grants[place.node_id] = await self._lease(*seat)
                count.more()
            except NodeError as error:
                # Ask the other nodes, too: a refusal says more than no answer.
                self.silent.add(place.node_id)
                silence = silence or error
        if silence is not None:
            raise silence
        if clock() - begun_s > RENEW_AFTER_S:
            await self._on_all("renewing the leases", self.seats, self._lease)
        return [grants[place.node_id] for place, _ in self.seats]

    async def _lease(self, place: Placement, member: M) -> LeaseGrant:
        is_head = place.node_rank == 0
        request = LeaseRequest(
            job_id=self.job_id,
            attempt=self.number,
            ranks=place.nproc,
            gpus=place.gpus,
            interface=place.interface,
            address=place.address,
            hold_port=(self.spec.port or 0) if is_head else None,
            workplace=workplace_of(self.spec),
            shares_gpus=place.shares_gpus,
            session=self.spec.session,
        )
        grant = await persist(lambda: member.lease(request), pauses_s=self._lease_pauses_s)
        if is_head and grant.port is None:
            raise RefusedError(
                "did not lease a port for the rendezvous",
                fix="install the same version of jupyter-mntrain on all nodes",
                node=place.node,
            )
        return grant

    async def _start(
        self, what: str, ask: Callable[[M], Awaitable[JobRecord]], *, head_last: bool
    ) -> list[JobRecord]:
        self.is_begun = True
        self.asked = [place for place, _ in self.seats]
        head, others = self.seats[:1], self.seats[1:]
        records = []
        for seats in (others, head) if head_last else (self.seats,):
            records += await self._on_all(
                what, seats, lambda _, m: persist(lambda: ask(m), pauses_s=self.pauses_s)
            )
        return records

    async def _on_all(
        self, what: str, seats: Sequence[Seat[M]], ask: Callable[[Placement, M], Awaitable[T]]
    ) -> list[T]:
        """Call all members at once and await each. Returns all answers, or raises one error."""
        count = Count(self.progress, what, len(seats))

        async def one(place: Placement, member: M) -> T:
            answer = await ask(place, member)
            count.more()
            return answer

        answers = await asyncio.gather(*(one(*seat) for seat in seats), return_exceptions=True)
        return all_or_error(answers)

    async def _undo(self) -> list[str]:
        """Stop what was started and release all leases. Returns what could not be undone."""
        seats = [seat for seat in self.seats if seat[0] in self.asked]
        left = await self._on_all("releasing the leases", seats, self._undo_one)
        return [one for one in left if one]

    async def _undo_one(self, place: Placement, member: M) -> str | None:
        job_id = self.job_id
        try:
            if self.is_begun and not await self._end(member):
                return f"{place.node} is still stopping its part; see: mntrain status {job_id}"
            await self._insist(lambda: member.release(job_id, self.number))
        except NodeError:
            return (
                f"{place.node} does not answer: its leases expire in {LEASE_EXPIRY_S:g} s, and "
                f"mntrain stop {job_id} ends anything that it started"
            )
        except MntrainError as error:
            return f"{place.node}: {error.cause}"
        return None

    async def _end(self, member: M) -> bool:
        """End a part, even if its start request is still on its way. Returns whether it ended."""
        # Stop all of a queued job: its head may have started the first attempt already.
        number = self.number or None
        request = StopRequest(reason="not every node could start", grace_s=0.0, attempt=number)
        try:
            record = await self._insist(lambda: member.stop(self.job_id, request))
            for _ in range(int(ROLLBACK_S / ROLLBACK_POLL_S)):
                # Until the start request arrives, the node has an earlier attempt.
                if record.part.state in TERMINAL or record.attempt.number < self.number:
                    return True
                await asyncio.sleep(ROLLBACK_POLL_S)
                record = await member.job(self.job_id)
        except JobNotFoundError:
            return True
        return False

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await persist(ask, kinds=SILENCES | MAYBE_DONE, pauses_s=self._lease_pauses_s)


def workplace_of(spec: JobSpec) -> Workplace | None:
    """Return a job's folder and interpreter on the nodes; ``None`` if the agent's own are used."""
    if spec.workdir is None and spec.python is None:
        return None
    return Workplace(workdir=spec.workdir, python=spec.python, trains=spec.needs_package)


def all_or_error(answers: Sequence[T | BaseException]) -> list[T]:
    """Return all answers, or raise the most telling error: a refusal rather than a lack
    of answer.
    """
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, NodeError))
    return [answer for answer in answers if not isinstance(answer, BaseException)]
