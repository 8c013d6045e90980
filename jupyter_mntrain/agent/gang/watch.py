"""Gang watch: ends the other parts of an attempt when one has failed.

Without it the other nodes wait: torchrun for 300 s at its exit barrier, ranks in a collective for
10 to 30 minutes (measured). The head's agent watches; if it does not answer, the lowest-ranked
participant that does. Nothing is killed because a peer does not answer: it may still be running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.agent.gang.link_trial import try_links
from jupyter_mntrain.agent.gang.notices import Notices, channels_of
from jupyter_mntrain.agent.gang.peer_client import Peers
from jupyter_mntrain.agent.gang.restarter import Restarter
from jupyter_mntrain.agent.gang.slowness_watch import SlownessWatch
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import StopRequest
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError
from jupyter_mntrain.model.failure.diagnosis import UNEXPLAINED, diagnose
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypotheses import own
from jupyter_mntrain.model.failure.judge import lacks_links, part_to_blame
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.events import EpisodesJudged, LinksTried
from jupyter_mntrain.model.lifecycle.restarts import is_in_next_grant, may_succeed
from jupyter_mntrain.model.lifecycle.rollup import (
    START_PATIENCE_S,
    has_lost_record,
    is_out,
    lost_part,
    taken_part,
    unknown_part,
)
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.evidence import LinkTry
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Episode,
    JobRecord,
    PartStatus,
    Placement,
    RankStatus,
)

log = logging.getLogger("mntrain.agent")


# Early silence: a node that is cut off before the first step, which all nodes make together.
#
# The others would wait for it as long as torch does, and for the first step that may be half an
# hour. Nothing that was computed is lost by ending the attempt. An agent that has died says nothing
# of its ranks, so its machine must be silent, too.


PATIENCE_S = 60.0
"""A node that has been silent for so long before the first step, and whose machine is silent, too,
ends the attempt: all nodes make that step together. Longer than a switch takes to start."""
CONNECT_S = 3.0
"""Timeout for asking its machine."""


class EarlySilence:
    """Detects nodes that fall silent at the start of an attempt."""

    def __init__(self) -> None:
        self._since_s: dict[NodeId, float] = {}

    async def look(
        self,
        parts: Sequence[PartStatus],
        silent: Sequence[Placement],
        now_s: float,
        *,
        is_session: bool = False,
    ) -> Problem | None:
        """Return why the attempt is to end, or ``None``. Call often.

        Args:
            parts: of the nodes that answer.
            silent: the other participants.
            now_s: monotonic seconds.
            is_session: it makes no steps, and has begun once its ranks are connected.
        """
        if any(_has_begun(rank, is_session=is_session) for part in parts for rank in part.ranks):
            silent = ()
        quiet = {place.node_id for place in silent}
        self._since_s = {one: self._since_s.get(one, now_s) for one in quiet}
        for place in silent:
            is_long = now_s - self._since_s[place.node_id] >= PATIENCE_S
            if is_long and not await _has_machine(place):
                return Problem(
                    kind=Kind.NODE_LOST,
                    cause=f"has not answered for {duration_text(PATIENCE_S)}, nor does its "
                    "machine, and there was no first step",
                    fix=fix_of(Kind.NODE_LOST),
                    node=place.node,
                )
        return None


def _has_begun(rank: RankStatus, *, is_session: bool) -> bool:
    return bool(rank.group_size if is_session else rank.step)


async def _has_machine(place: Placement) -> bool:
    """Return whether the node's machine answers. Refusing a connection is an answer."""
    return any(await asyncio.gather(*map(_answers, place.agent)))


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


# Stall history: the stalls of a job, each with the cause that it had. Pure.


def with_stall(
    known: tuple[Episode, ...], stall: Problem | None, now_s: float
) -> tuple[Episode, ...]:
    """Update the episodes with a stall, or its end.

    A stall with another cause is another one: the first is over. One that nothing explained has its
    cause by then.

    Args:
        stall: what stalls the job now, if anything does.
        now_s: Unix time, by the clock of the attempt.
    """
    current = next((one for one in known if one.is_stall and one.end_s is None), None)
    others = tuple(one for one in known if one is not current)
    if stall is None:
        return known if current is None else (*others, current.ended(now_s))
    if current is None:
        return (*known, _episode(stall))
    before = current.problem
    if before.kind in UNEXPLAINED or _place(before) == _place(stall):
        told = msgspec.structs.replace(stall, time_s=before.time_s)
        return known if told == before else (*others, _episode(told))
    began = msgspec.structs.replace(stall, time_s=stall.seen_s or now_s)
    return (*others, current.ended(now_s), _episode(began))


def _episode(stall: Problem) -> Episode:
    words = " ".join(("stalled:", stall.place, stall.kind.replace("-", " ")))
    return Episode(problem=stall, label=" ".join(words.split()), is_stall=True)


def _place(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.node, problem.rank


WATCH_INTERVAL_S = 1.0
"""Interval at which the head checks the other parts of its job."""

SYMPTOM_PATIENCE_S = tunables.seconds("failure.symptom_patience_s")

LINKS_PATIENCE_S = 8.0
"""Time for every node to try its links before a stall is diagnosed."""

GIVE_UP_AFTER_S = tunables.seconds("restarts.give_up_after_s")


@dataclass
class GangWatch:
    """Watches the other participants of one attempt, from this node.

    Args:
        notices: told of a stall.
        why_taken: why a node, by name, was taken back by a scheduler; ``None`` if it was not.
        clock: monotonic seconds.
    """

    job: LocalJob
    peers: Peers
    notices: Notices | None = None
    why_taken: Callable[[str], Problem | None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _symptom_since_s: float | None = None
    _parts: tuple[PartStatus, ...] = ()
    _stalled_since_s: float | None = None
    _trying: asyncio.Task[None] | None = None
    _tried_for_s: float | None = None
    """When the stall was looked at that the links were tried for last."""
    _slowness: SlownessWatch = field(default_factory=SlownessWatch)
    _silence: EarlySilence = field(default_factory=EarlySilence)

    async def run(self) -> tuple[PartStatus, ...]:
        """Watch until every known part has ended, and return the parts."""
        own = self.job.placement
        places = self.job.record.attempt.placements
        before = [p for p in places if p.node_rank < own.node_rank]
        after = [p for p in places if p.node_rank > own.node_rank]
        ended_s: float | None = None
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            if not self.job.is_active:
                ended_s = ended_s or self.clock()
                if self.clock() - ended_s > GIVE_UP_AFTER_S:
                    break
            self._try_links()
            if await self._look(before, after) and not lacks_links(self.job.record.part):
                break
        return self._parts

    def _try_links(self) -> None:
        """Try the links, in a task of its own, after each failure and each look at a stall."""
        part = self.job.record.part
        seen_s = part.stall.seen_s if part.stall and part.state not in TERMINAL else None
        is_old = seen_s is not None and seen_s != self._tried_for_s
        if self._trying is not None or not (lacks_links(part) or (is_old and part.evidence)):
            return
        self._tried_for_s = seen_s

        async def work() -> None:
            links: tuple[LinkTry, ...] = ()
            try:
                links = await try_links(self.job, self.peers)
            finally:  # also if they cannot be tried: nobody waits for them for ever
                self.job.change(LinksTried(links=links))
                self._trying = None

        self._trying = asyncio.ensure_future(work())

    async def _look(self, before: Sequence[Placement], after: Sequence[Placement]) -> bool:
        """Check all participants once. Returns whether there is nothing left to watch."""
        lost = []
        for placement in before:
            head = await self._ask(placement)
            if head is not None and has_lost_record(head.part):
                lost.append(head.part)  # it watches nobody
            elif head is not None:
                # That node watches the others, and knows already that our part failed.
                number = self.job.record.attempt.number
                if head.attempt.number > number:
                    self._end_ours(f"attempt {number} is over")
                elif not self.waits_for_a_cause([head.part]):
                    self._end_ours(reason_to_end([head.part]))
                self._leave_episodes()
                return not self.job.is_active
        answers = await asyncio.gather(*map(self._ask, after))
        told = [*lost, *(record.part for record in answers if record is not None)]
        heard = {part.node_id for part in told}
        quiet = [place for place in (*before, *after) if place.node_id not in heard]
        peers = [*told, *self._taken(quiet)]
        parts = [self.job.record.part, *peers]
        self._parts = tuple(parts)
        known = {part.node_id for part in parts}
        silent = [place for place in quiet if place.node_id not in known]
        everyone = [*parts, *map(unknown_part, silent)]
        stall = diagnose(everyone)
        self._judge([self.job.record, *(one for one in answers if one is not None)], stall)
        if stall is not None and self.notices is not None:
            self.notices.tell_stall(stall)
        self._give_up_on_a_stall(everyone)
        await self._give_up_on_the_start(parts, silent)
        reason = reason_to_end(parts)
        if reason is not None and not self.waits_for_a_cause(parts):
            self._end_without_record(next(filter(is_out, parts), None))
            self._end_ours(reason)
            active = {part.node_id for part in peers if part.state not in TERMINAL}
            await asyncio.gather(*(self._stop(p, reason) for p in after if p.node_id in active))
        return len(peers) == len(before) + len(after) and all(p.state in TERMINAL for p in parts)

    def _taken(self, silent: Sequence[Placement]) -> list[PartStatus]:
        """Return the parts of silent nodes that a scheduler has taken back."""
        why = [(place, self.why_taken(place.node)) for place in silent]
        now_s = self.job.now_s()
        return [taken_part(place, problem, now_s) for place, problem in why if problem is not None]

    async def _give_up_on_the_start(
        self, parts: Sequence[PartStatus], silent: Sequence[Placement]
    ) -> None:
        """End an attempt in which no node has made a step, and from which a node is cut off."""
        is_session = self.job.record.spec.is_session
        lost = await self._silence.look(parts, silent, self.clock(), is_session=is_session)
        if lost is not None and self.job.is_active and self.job.record.part.state != "stopping":
            log.info("job %s: giving up: %s", self.job.record.job_id, lost)
            self.job.abort(msgspec.structs.replace(lost, time_s=self.job.now_s()))

    def _judge(self, records: Sequence[JobRecord], stall: Problem | None) -> None:
        """Record whether the job stalls or is slower than before."""
        part, now_s = self.job.record.part, self.job.now_s()
        if part.state not in ("starting", "running"):
            return
        known = with_stall(part.episodes, stall, now_s)
        if part.state == "running" and stall is None:
            pressures = {one.part.node: one.pressure for one in records if one.pressure is not None}
            slow = tuple(one for one in known if one.is_slowdown)
            others = tuple(one for one in known if not one.is_slowdown)
            found = self._slowness.look(slow, pressures, now_s)
            known = known if found == slow else (*others, *found)
        self._tell_episodes(known)

    def _tell_episodes(self, episodes: tuple[Episode, ...]) -> None:
        if episodes != self.job.record.part.episodes:
            self.job.change(EpisodesJudged(episodes=episodes))

    def _leave_episodes(self) -> None:
        """End the stalls and slowdowns that this node reported as head, because another node leads
        again.
        """
        now_s = self.job.now_s()
        self._tell_episodes(tuple(one.ended(now_s) for one in self.job.record.part.episodes))

    def waits_for_a_cause(self, parts: Sequence[PartStatus]) -> bool:
        """Return whether only symptoms are known, so that the cause may still be reported."""
        guilty = part_to_blame(parts)
        if guilty is None or guilty.problem is None or not guilty.problem.is_symptom:
            return False
        self._symptom_since_s = self._symptom_since_s or self.clock()
        return self.clock() - self._symptom_since_s < SYMPTOM_PATIENCE_S

    def _give_up_on_a_stall(self, parts: Sequence[PartStatus]) -> None:
        """End a stalled attempt as failed if the job is set to, or if it can continue without an
        unreachable node.
        """
        spec = self.job.record.spec
        is_silent = any(part.state == "unknown" for part in parts)
        if spec.on_stall != "abort" and not (is_silent and spec.min_nodes and spec.max_restarts):
            return
        found = diagnose(parts)
        if found is None:
            self._stalled_since_s = None
            return
        self._stalled_since_s = self._stalled_since_s or self.clock()
        if (
            any(lacks_links(part) for part in parts)
            and self.clock() - self._stalled_since_s < LINKS_PATIENCE_S
        ):
            return
        if self.job.record.part.state == "running":
            log.info("job %s: giving up: %s", self.job.record.job_id, found)
            self.job.abort(msgspec.structs.replace(found, time_s=self.job.now_s()))

    def _end_ours(self, reason: str | None) -> None:
        if reason is not None and self.job.is_active and self.job.record.part.state != "stopping":
            log.info("job %s: ending our part: %s", self.job.record.job_id, reason)
            self.job.stop(reason, StopRequest(reason=reason).grace_s, after_failure=True)

    def _end_without_record(self, lost: PartStatus | None) -> None:
        """End our part as failed, because another node has lost its part and cannot report that
        itself.
        """
        problem = own(lost) if lost is not None else None
        if problem is not None and self.job.record.part.state != "stopping":
            self.job.abort(problem)

    async def _ask(self, placement: Placement) -> JobRecord | None:
        """Ask a participant for its record of this attempt or a later one."""
        ours = self.job.record
        try:
            record = await self.peers(placement).job(ours.job_id)
        except JobNotFoundError:
            now_s = self.job.now_s()
            if now_s - ours.attempt.submitted_s < START_PATIENCE_S:
                return None  # its start may be on its way
            return msgspec.structs.replace(ours, part=lost_part(placement, "running", now_s))
        except MntrainError:
            return None
        return record if record.attempt.number >= self.job.record.attempt.number else None

    async def _stop(self, placement: Placement, reason: str) -> None:
        number = self.job.record.attempt.number
        request = StopRequest(reason=reason, attempt=number, after_failure=True)
        with suppress(MntrainError):
            await self.peers(placement).stop(self.job.record.job_id, request)


def reason_to_end(parts: Sequence[PartStatus]) -> str | None:
    """Return why to end all parts, as ``node2: rank 1 failed: killed by SIGKILL``, or ``None``."""
    failed = [part for part in parts if part.state == "failed"]
    if failed:
        guilty = part_to_blame(failed) or failed[0]
        problem = own(guilty)
        if problem is None:
            return f"{guilty.node} failed"
        return f"{problem.place} failed: {problem.cause}"
    for part in parts:
        if part.state == "canceled":
            return part.stop_reason or f"{part.node} was stopped"
    return None


# Watch tasks: run one gang watch per attempt of this agent, then its restarts.


class WatchTasks:
    """Runs one watch task per attempt, even if asked twice."""

    def __init__(
        self,
        node: LocalNode,
        peers: Peers,
        why_taken: Callable[[str], Problem | None] = lambda _: None,
        renewed: Callable[[Placement], Placement] = lambda place: place,
    ) -> None:
        self._node = node
        self._why_taken = why_taken
        """Why a node, by name, was taken back by a scheduler."""
        self.peers = peers
        """Makes the client of another node."""
        self._restarter = Restarter(node, peers, renewed)
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, job: LocalJob) -> None:
        """Watch an attempt, unless it ended so long ago that all nodes know it."""
        record = job.record
        ended_s = record.part.ended_s
        is_old = ended_s is not None and job.now_s() - ended_s > GIVE_UP_AFTER_S
        if is_old and not (_is_to_restart(record) or _may_have_to_succeed(record)):
            return
        key = (record.job_id, record.attempt.number)
        if key in self._tasks:
            return
        task = asyncio.ensure_future(self._follow(job))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _follow(self, job: LocalJob) -> None:
        try:
            is_begun = not job.record.is_queued
            state = self._node.jobs.directory.parent
            notices = Notices(job, channels_of(job, state))
            watch = GangWatch(job, self.peers, notices, self._why_taken)
            parts = await watch.run() if is_begun else ()
            restarted = None
            if _is_to_restart(job.record):
                restarted = await self._restarter.run(job, parts)
            elif _may_have_to_succeed(job.record):
                restarted = await self._restarter.succeed(job)
            if restarted is not None:
                self.watch(restarted)
            elif not job.record.is_live and parts and all(p.state in TERMINAL for p in parts):
                notices.tell_end(parts)
        except Exception as error:  # noqa: BLE001 - ends the part; logged with an id
            job.give_up()
            self._node.jobs.fail(job, error, "cannot watch the job")

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()


def _is_to_restart(record: JobRecord) -> bool:
    """Return whether this node, as the head, still has to decide what comes next."""
    is_head = record.attempt.head.node_id == record.part.node_id
    if is_head and record.restart is not None:
        return not is_in_next_grant(record.restart)
    is_to_come = record.spec.max_restarts > 0 or record.is_queued
    return is_head and is_to_come and not record.is_over


def _may_have_to_succeed(record: JobRecord) -> bool:
    """Return whether this node would replace a lost head."""
    is_head = record.attempt.head.node_id == record.part.node_id
    return not is_head and may_succeed(record) and not record.is_over
