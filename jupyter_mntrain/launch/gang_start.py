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
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import (
    LEASE_EXPIRY_S,
    LeaseGrant,
    LeaseRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.clock import Clock
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import MAYBE_DONE, SILENCES
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobSpec, Placement

RENEW_AFTER_S = LEASE_EXPIRY_S / 3
"""If leasing took this long, all leases are renewed before the start."""

ROLLBACK_S = tunables.seconds("launch.rollback_timeout_s")

ROLLBACK_POLL_S = 0.1


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
        number: the attempt's; 0 for a job that is only left with its nodes.
        seats: all participants with their agents, in node-rank order.
        progress: hears how many nodes have answered.
        pauses_s: before each repetition of a request that got no answer.
        is_repeated: the caller tries again anyway, so leases and releases are asked for once.
    """

    job_id: JobId
    number: int
    spec: JobSpec
    seats: Sequence[Seat[M]]
    progress: Progress = SILENT
    pauses_s: tuple[float, ...] = PAUSES_S
    is_repeated: bool = False
    silent: set[NodeId] = field(default_factory=set)
    """Nodes that did not answer when they were to lease."""
    asked: list[Placement] = field(default_factory=list)
    """Nodes that may hold something of the attempt."""
    is_begun: bool = False
    """Whether a node may have started its part."""
    left: list[str] = field(default_factory=list)
    """What could not be undone after a failure, in words."""

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
            now: tells when each request is sent.
            head_last: start the head once all others have started.

        Raises:
            MntrainError: why it did not start; :attr:`left` says what could not be undone.
        """

        async def work() -> list[JobRecord]:
            made = request(await self._lease_in_turn())
            return await self._start(
                "starting torchrun",
                lambda member: member.start(msgspec.structs.replace(made, sent_s=now())),
                head_last=head_last,
            )

        return await self._or_undo(work())

    async def deposit(self, ask: Callable[[M], Awaitable[JobRecord]]) -> list[JobRecord]:
        """Leave a job that waits with all of its nodes: the head last, for it begins at once.

        Raises:
            MntrainError: as :meth:`start`.
        """
        return await self._or_undo(self._start("queueing it on the nodes", ask, head_last=True))

    async def _or_undo(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except BaseException:  # Ctrl-C too: what was taken is given back, then it goes on
            self.left = await asyncio.shield(self._undo())
            raise

    async def _lease_in_turn(self) -> list[LeaseGrant]:
        """By node id, up to the first refusal: of two jobs that want the same nodes, one is refused
        at once instead of each holding what the other one needs.
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
                count.one()
            except NodeError as error:
                # The others are asked all the same: a refusal says more than a silence.
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
            hold_port=(self.spec.port or 0) if is_head else None,
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
        """Ask all at once and each to its end; every answer, or the error that tells most."""
        count = Count(self.progress, what, len(seats))

        async def one(place: Placement, member: M) -> T:
            answer = await ask(place, member)
            count.one()
            return answer

        answers = await asyncio.gather(*(one(*seat) for seat in seats), return_exceptions=True)
        return all_or_error(answers)

    async def _undo(self) -> list[str]:
        """Stop what was started and give back what was leased; what could not be, in words."""
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
                f"{place.node} does not answer: its leases expire in {LEASE_EXPIRY_S:g} s, "
                f"to end what it may have started, run mntrain stop {job_id}"
            )
        except MntrainError as error:
            return f"{place.node}: {error.cause}"
        return None

    async def _end(self, member: M) -> bool:
        """End a part, also one whose start is still on its way; whether it is over."""
        # Of a job that waits all of it is stopped: its head may be at the first attempt already.
        number = self.number or None
        request = StopRequest(reason="not every node could start", grace_s=0.0, attempt=number)
        try:
            record = await self._insist(lambda: member.stop(self.job_id, request))
            for _ in range(int(ROLLBACK_S / ROLLBACK_POLL_S)):
                # Before its start came, the node is at an earlier attempt.
                if record.part.state in TERMINAL or record.attempt.number < self.number:
                    return True
                await asyncio.sleep(ROLLBACK_POLL_S)
                record = await member.job(self.job_id)
        except JobNotFoundError:
            return True
        return False

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await persist(ask, kinds=SILENCES | MAYBE_DONE, pauses_s=self._lease_pauses_s)


def all_or_error(answers: Sequence[T | BaseException]) -> list[T]:
    """Every answer, or the error that tells most: a refusal says more than a silence."""
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, NodeError))
    return [answer for answer in answers if not isinstance(answer, BaseException)]
