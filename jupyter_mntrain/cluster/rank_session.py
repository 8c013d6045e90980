"""Rank session: runs cells on ranks that stay, and follows what they say; of a driver."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import (
    MntrainError,
    NodeError,
    RefusedError,
    SpecError,
    error_of,
)
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.quantities import agreeing, listed, numbered
from jupyter_mntrain.model.records.job import TERMINAL, JobView, Placement
from jupyter_mntrain.model.records.session import (
    Answer,
    At,
    Complete,
    Completions,
    Described,
    Done,
    Event,
    Follow,
    Hello,
    Inspect,
    Interrupt,
    Pull,
    Pulled,
    Push,
    Request,
    Run,
    SessionRequest,
    Silent,
    State,
    Value,
    Where,
)

BREAK_AFTER_S: Final = 1.0
"""How long an interrupted cell has to end before the connections between ranks are closed."""
STUCK_AFTER_S: Final = 4.0
"""And how long until it is said where it has not."""
LOST_AFTER_S: Final = 30.0
"""How long a node that does not answer is asked again."""
PAUSE_S: Final = 0.5
READY_EVERY_S: Final = 0.1
VERDICT_S: Final = 15.0
"""How long the end of a session's job may take to be known here, once a node has said it."""
AGAIN_S: Final = 2.0
"""How long they have to be where they are until that is said."""
UNHEARD_S: Final = 4.0
"""How long a node may not answer until that is said."""
ALONE_S: Final = 5.0
"""How long ranks may run on alone, once others have ended the cell, before it is looked where they
are."""


class Waiting(Record, frozen=True):
    """Ranks that wait for others which have ended the cell.

    Args:
        waiting: where each is.
        ended: the others.
    """

    waiting: tuple[At, ...]
    ended: tuple[int, ...]

    def __str__(self) -> str:
        first, *_ = self.waiting
        ranks = listed([str(one.rank) for one in self.waiting])
        others = listed([str(one) for one in self.ended])
        line = f" in line {first.line}" if first.line is not None else ""
        text = f"{agreeing(self.waiting, 'rank', 'ranks')} {ranks} "
        text += f"{agreeing(self.waiting, 'waits', 'wait')} in {first.call}{line} for "
        text += f"{agreeing(self.ended, 'rank', 'ranks')} {others}, "
        return text + agreeing(self.ended, "which has ended the cell", "which have ended the cell")


class Unheard(Record, frozen=True):
    """Ranks that do not answer while they run a cell. It may go on there, and is followed once they
    do.
    """

    ranks: tuple[int, ...]
    cause: str

    def __str__(self) -> str:
        return f"{numbered('rank', self.ranks)}: {self.cause}"


CellEvent = Event | Waiting | Unheard


class RankSession:
    """Runs cells on the ranks of a session.

    Args:
        view: the job as it is now.

    Raises:
        RefusedError: the job is no session.
    """

    def __init__(self, driver: DriverSession, job_id: JobId, view: Callable[[], JobView]) -> None:
        if not view().spec.is_session:
            raise RefusedError(
                f"job {job_id} is no session: it runs no cells",
                fix="start one: mntrain session start",
            )
        self.job_id = job_id
        self._driver, self._view = driver, view
        self._cell = 0

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self._view().attempt.world_size)

    def states(self) -> dict[int, State | Silent]:
        """Return how each rank is.

        Raises:
            MntrainError: why the session is over, or why no node answers.
        """
        return self._driver.loop.run(self._states_heard())

    def wait(self, progress: Progress = SILENT) -> None:
        """Wait until all ranks can run cells.

        Raises:
            MntrainError: why the session is over, or why a node does not answer.
        """
        ready, size, heard_s = 0, len(self.ranks), time.monotonic()
        while ready < size:
            try:
                states = self._driver.loop.run(self._states())
            except NodeError:
                if time.monotonic() - heard_s > LOST_AFTER_S:
                    raise
            else:
                heard_s = time.monotonic()
                ready = sum(isinstance(one, State) for one in states.values())
            progress.report("ranks ready", ready, size)
            time.sleep(0.0 if ready == size else READY_EVERY_S)

    def run(
        self, code: str, ranks: Iterable[int] | None = None
    ) -> Generator[CellEvent, None, None]:
        """Run a cell, and yield what its ranks write, show and end with, as it comes.

        The cell runs on if the generator is closed: :meth:`follow` goes on with it.

        Args:
            ranks: all by default.

        Raises:
            SpecError: there is no such rank.
            RefusedError: a cell is running.
            MntrainError: why the session is over.
        """
        chosen = self._chosen(ranks)
        return self._driver.loop.iterate(self._cell_events(code, chosen))

    def follow(self) -> Generator[CellEvent, None, None]:
        """Yield what the newest cell has written, and goes on to write."""
        return self._driver.loop.iterate(self._follow_newest())

    def interrupt(self) -> tuple[int, ...]:
        """End the running cell on all ranks with ``KeyboardInterrupt``. Takes up to some seconds:
        a collective does not end by itself, so that the connections between ranks are closed then.

        Returns:
            Ranks on which it may go on: they are in a call that cannot be interrupted, catch it, or
            do not answer.
        """
        return self._driver.loop.run(self._interrupt())

    def answer(self, rank: int, text: str) -> None:
        """Answer what a rank asks with ``input``, or a debugger at its prompt."""
        self._driver.loop.run(self._ask([rank], Answer(text)))

    def where(self, ranks: Iterable[int] | None = None) -> dict[int, At | Silent]:
        """Return where ranks are in the running cell."""
        found = self._driver.loop.run(self._ask(self._chosen(ranks), Where()))
        return {rank: one for rank, one in found.items() if isinstance(one, At | Silent)}

    def complete(self, code: str, position: int, rank: int = 0) -> Completions | None:
        found = self._driver.loop.run(self._ask([rank], Complete(code, position)))[rank]
        return found if isinstance(found, Completions) else None

    def inspect(self, code: str, position: int, detail: int = 0, rank: int = 0) -> Described | None:
        found = self._driver.loop.run(self._ask([rank], Inspect(code, position, detail)))[rank]
        return found if isinstance(found, Described) else None

    def pull(self, name: str, ranks: Iterable[int] | None = None) -> dict[int, Value]:
        """Return the value of a variable on each rank, as it is sent.

        Raises:
            SpecError: a rank has no such variable, or it cannot be sent.
        """
        return {
            rank: one.value
            for rank, one in self._exchanged(Pull(name), self._chosen(ranks)).items()
            if one.value is not None
        }

    def push(self, name: str, value: Value, ranks: Iterable[int] | None = None) -> None:
        """Set a variable on each rank.

        Raises:
            SpecError: the name is no name, or a rank cannot take it.
        """
        if not name.isidentifier():
            raise SpecError(f"{name!r} is no name of a variable", fix="give a Python name")
        self._exchanged(Push(name, value), self._chosen(ranks))

    def _exchanged(self, request: Pull | Push, ranks: Sequence[int]) -> dict[int, Pulled]:
        found = self._driver.loop.run(self._ask(ranks, request))
        for rank, one in found.items():
            if isinstance(one, Silent):
                raise RefusedError(f"rank {rank}: {one.cause}", fix="try again once it is idle")
            if isinstance(one, Pulled) and one.cause:
                raise SpecError(one.cause, fix=one.fix)
        return {rank: one for rank, one in found.items() if isinstance(one, Pulled)}

    def _chosen(self, ranks: Iterable[int] | None) -> tuple[int, ...]:
        if ranks is None:
            return tuple(self.ranks)
        chosen = tuple(dict.fromkeys(ranks))
        for rank in chosen:
            if rank not in self.ranks:
                last = len(self.ranks) - 1
                raise SpecError(f"there is no rank {rank}", fix=f"ranks are 0 to {last}")
        return chosen

    async def _states(self) -> dict[int, State | Silent]:
        found = await self._ask(self.ranks, Hello())
        return {rank: one for rank, one in found.items() if isinstance(one, State | Silent)}

    async def _states_heard(self) -> dict[int, State | Silent]:
        """Return how each rank is, with those of nodes that do not answer, unless no rank does."""
        found = await self._ask(self.ranks, Hello(), needs_all=False)
        states = {rank: one for rank, one in found.items() if isinstance(one, State | Silent)}
        if not any(isinstance(one, State) for one in states.values()):
            return await self._states()  # or raises why
        return states

    async def _cell_events(
        self, code: str, ranks: tuple[int, ...]
    ) -> AsyncGenerator[CellEvent, None]:
        states = await self._states()
        told = [one for one in states.values() if isinstance(one, State)]
        for rank, one in states.items():
            if isinstance(one, Silent):
                raise RefusedError(f"rank {rank}: {one.cause}", fix="wait for it, or interrupt it")
        if busy := [one.rank for one in told if one.is_running]:
            raise RefusedError(
                f"a cell is running on {agreeing(busy, 'rank', 'ranks')} "
                f"{listed([str(one) for one in busy])}",
                fix="wait for its end, or interrupt it: mntrain session interrupt",
            )
        self._cell = max(one.cell for one in told) + 1
        groups = max(one.groups for one in told) + any(one.is_broken for one in told)
        # All ranks form the group again together, those without a cell, too.
        others = self.ranks if groups > min(one.groups for one in told) else ()
        requests = {rank: Run(self._cell, "", groups) for rank in others}
        requests |= {rank: Run(self._cell, code, groups) for rank in ranks}
        async with aclosing(self._followed(requests)) as events:
            async for event in events:
                yield event

    async def _follow_newest(self) -> AsyncGenerator[CellEvent, None]:
        states = await self._states_heard()
        told = [one for one in states.values() if isinstance(one, State)]
        self._cell = max((one.cell for one in told), default=0)
        if not self._cell:
            return
        requests = {one.rank: Follow(self._cell) for one in told if one.cell == self._cell}
        async with aclosing(self._followed(requests)) as events:
            async for event in events:
                yield event

    async def _followed(
        self, requests: dict[int, Run] | dict[int, Follow]
    ) -> AsyncGenerator[CellEvent, None]:
        """Yield the events of all ranks, and what they wait for if they are left alone."""
        events: asyncio.Queue[CellEvent | MntrainError] = asyncio.Queue(256)
        left = {*requests}
        alike: dict[Run | Follow, list[int]] = {}
        for rank, request in requests.items():
            alike.setdefault(request, []).append(rank)
        tasks = [
            asyncio.create_task(self._follow_node(place, own, request, events))
            for request, ranks in alike.items()
            for place, own in self._by_node(ranks)
        ]
        look_s = math.inf
        seen: Waiting | None = None
        said: Waiting | None = None
        try:
            while left:
                try:
                    event = await asyncio.wait_for(events.get(), PAUSE_S)
                except TimeoutError:
                    event = None
                if isinstance(event, MntrainError):
                    raise event
                if isinstance(event, Done):
                    left.discard(event.rank)
                    look_s = time.monotonic() + ALONE_S
                if event is not None:
                    yield event
                if left and time.monotonic() > look_s:
                    look_s = time.monotonic() + AGAIN_S
                    before, seen = seen, await self._waiting(left, {*requests} - left)
                    if seen not in (None, said) and seen == before:
                        said = seen
                        yield seen
        finally:
            for task in tasks:
                task.cancel()

    async def _waiting(self, left: Iterable[int], ended: Iterable[int]) -> Waiting | None:
        found = (await self._ask(sorted(left), Where(), needs_all=False)).values()
        places = [
            At(one.rank, one.line, one.source, one.call) for one in found if isinstance(one, At)
        ]
        if len(places) < len(found) or not all(one.call for one in places):
            return None  # it may be one that does not answer that they wait for
        return Waiting(tuple(places), tuple(sorted(ended)))

    async def _follow_node(
        self,
        place: Placement,
        ranks: tuple[int, ...],
        request: Run | Follow,
        events: asyncio.Queue[CellEvent | MntrainError],
    ) -> None:
        """Put the events of a node's ranks into a queue until their cell ends, over connections
        that break.
        """
        last, heard_s, is_said = dict.fromkeys(ranks, 0), time.monotonic(), False
        silences = _Silences()
        while last:
            try:
                async for event in self._new_events(place, last, request):
                    heard_s, is_said = time.monotonic(), False
                    if (shown := silences.shown(event)) is not None:
                        await events.put(shown)
            except NodeError as error:
                silent_s = time.monotonic() - heard_s
                if silent_s > LOST_AFTER_S:
                    await events.put(error)
                    return
                if silent_s > UNHEARD_S and not is_said:
                    is_said = True
                    problem = error.problem
                    await events.put(Unheard(tuple(last), f"{problem.place}: {problem.cause}"))
            except MntrainError as error:
                await events.put(await self._cause_of(error))
                return
            if not last:
                return
            if (why := self._why_over()) is not None:
                await events.put(why)
                return
            await asyncio.sleep(PAUSE_S)

    async def _new_events(
        self, place: Placement, last: dict[int, int], request: Run | Follow
    ) -> AsyncGenerator[Event, None]:
        """Yield what has not arrived yet.

        Args:
            last: number of the last event that has, of each rank that has not ended the cell;
                is kept so.
        """
        after = {rank: number for rank, number in last.items() if number}
        async with aclosing(self._events(place, tuple(last), request, after)) as events:
            async for event in events:
                if event.rank not in last:
                    continue
                last[event.rank] = getattr(event, "number", last[event.rank])
                if isinstance(event, Done):
                    del last[event.rank]
                yield event

    async def _interrupt(self) -> tuple[int, ...]:
        cell = self._cell
        if not cell:
            heard = (await self._states_heard()).values()
            cell = max((one.cell for one in heard if isinstance(one, State)), default=0)
        # On the nodes that answer: what waits there for one that is gone ends, too.
        states = await self._ask(self.ranks, Interrupt(cell), needs_all=False)
        begun_s, has_broken = time.monotonic(), False
        while any(isinstance(one, State) and one.is_running for one in states.values()):
            took_s = time.monotonic() - begun_s
            if took_s > STUCK_AFTER_S:
                break
            if took_s > BREAK_AFTER_S and not has_broken:
                has_broken = True
                # On every rank: each has one end of a connection.
                await self._ask(self.ranks, Interrupt(cell, breaks=True), needs_all=False)
            await asyncio.sleep(0.05)
            states = await self._ask(self.ranks, Hello(), needs_all=False)
        told = {rank: one for rank, one in states.items() if isinstance(one, State)}
        return tuple(rank for rank in states if rank not in told or told[rank].is_running)

    async def _ask(
        self, ranks: Iterable[int], request: Request, *, needs_all: bool = True
    ) -> dict[int, Event]:
        """Ask ranks for one event each.

        Args:
            needs_all: otherwise a rank whose node does not answer is :class:`Silent`.

        Raises:
            MntrainError: why the session is over, or why a node does not answer.
        """
        asked = tuple(ranks)
        try:
            several = await asyncio.gather(
                *(self._answers(*each, request, needs_all) for each in self._by_node(asked))
            )
        except NodeError:
            if (why := self._why_over()) is not None:
                raise why from None
            raise
        except RefusedError as error:
            raise await self._cause_of(error) from None
        found = {rank: one for answers in several for rank, one in answers.items()}
        for rank, one in found.items():
            if isinstance(one, Silent) and one.has_ended:
                again = f"mntrain session restart {self.job_id}"
                ended = RefusedError(f"rank {rank}: {one.cause}", fix=f"start them again: {again}")
                raise await self._cause_of(ended)
        return {rank: found[rank] for rank in asked}

    async def _answers(
        self,
        place: Placement,
        ranks: tuple[int, ...],
        request: Request,
        needs_all: bool,
    ) -> dict[int, Event]:
        found: dict[int, Event] = {}
        cause = "it has not answered"
        try:
            async with aclosing(self._events(place, ranks, request)) as events:
                async for event in events:
                    found.setdefault(event.rank, event)
                    if len(found) == len(ranks):
                        break
        except NodeError as error:
            if needs_all:
                raise
            cause = f"{error.problem.place}: {error.problem.cause}"
        return {rank: found.get(rank, Silent(rank, cause)) for rank in ranks}

    async def _events(
        self,
        place: Placement,
        ranks: tuple[int, ...],
        request: Request,
        after: dict[int, int] | None = None,
    ) -> AsyncGenerator[Event, None]:
        client = self._driver.live.client_of(place)
        asked = SessionRequest(self._view().attempt.number, ranks, request, after or {})
        async with aclosing(client.session(self.job_id, asked)) as events:
            async for event in events:
                yield event

    def _by_node(self, ranks: Iterable[int]) -> list[tuple[Placement, tuple[int, ...]]]:
        """Return each node with those ranks that it has: it is asked for all of them at once."""
        meant = {*ranks}
        several = [
            (place, tuple(rank for rank in place.ranks if rank in meant))
            for place in self._view().attempt.placements
        ]
        return [(place, own) for place, own in several if own]

    async def _cause_of(self, error: MntrainError) -> MntrainError:
        """Return why the session is over, once that is known: a node refuses as soon as a rank has
        ended, and the verdict comes when all have.
        """
        until_s = time.monotonic() + VERDICT_S
        while True:
            why = self._why_over()
            if why is not None or time.monotonic() > until_s:
                return why or error
            await asyncio.sleep(PAUSE_S)

    def _why_over(self) -> MntrainError | None:
        view = self._view()
        if view.state not in TERMINAL:
            return None
        if view.problem is not None:
            return error_of(view.problem)
        return RefusedError(
            f"the session {view.job_id} is over: it is {view.state}",
            fix=f"start it again: mntrain session restart {view.job_id}",
        )


class _Silences:
    """Lets each silence of a rank be said once."""

    def __init__(self) -> None:
        self._ranks: set[int] = set()

    def shown(self, event: Event) -> CellEvent | None:
        """Return what a person sees of an event. A state only tells that the rank is there; the end
        of a process is told with its cause, once that is known.
        """
        if not isinstance(event, Silent):
            self._ranks.discard(event.rank)
            return None if isinstance(event, State) else event
        if event.has_ended or event.rank in self._ranks:
            return None
        self._ranks.add(event.rank)
        return Unheard((event.rank,), event.cause)
