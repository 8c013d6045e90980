"""Waiting launches: this user's launches that wait for nodes, for all pages of a server.

Each scheduler is asked in a thread of its own, once in a while for all pages together, and only
while one of them listens: one that is slow or absent delays nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from jupyter_mntrain.cluster.loop import CLOSE_S, ClosedError
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.sources.source import Allocation, AllocationState
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.sources.awaited_launch import LOOK_EVERY_S, AwaitedLaunch, refusal_of
from jupyter_mntrain.sources.registry import sources, title_of


class WaitingLaunch(Record, frozen=True):
    """A launch that waits for nodes, for the first time or after its job was preempted.

    Args:
        cluster: that its nodes form; by it the launch is followed, and canceled.
        name: what the scheduler's lists show.
        source: as it is written in sentences.
        allocation: the source's own id.
        why: it waits, or why that is not known; its kind says whether waiting can help.
        word: the scheduler's own for that.
        expected_start_s: Unix time, as the scheduler reckons now.
        job_id: of the job that goes on once nodes are granted again; ``None`` = not started yet.
    """

    cluster: str
    name: str
    source: str
    allocation: str
    nodes: int
    state: AllocationState
    why: Problem | None = None
    word: str = ""
    expected_start_s: float | None = None
    job_id: JobId | None = None


class _Look(NamedTuple):
    """The result of one look at a scheduler.

    Args:
        notes: all of the book; ``None`` if it could not be read.
        at: which of them was asked about.
        problem: why the scheduler did not say how it is.
    """

    notes: tuple[AllocationNote, ...] | None = None
    at: AllocationNote | None = None
    allocation: Allocation | None = None
    problem: Problem | None = None


class WaitingLaunches:
    """Asks schedulers about the allocations in this user's book, and keeps their answers.

    All methods are called on the event loop.

    Args:
        tell: called once a look has ended.
        watch: has the pages show the jobs of an allocation's cluster; called in the thread of a
            look.
        end: told of each cluster whose allocation is not granted again.
        book: default: this user's.
    """

    def __init__(
        self,
        tell: Callable[[], None],
        watch: Callable[[str], None],
        end: Callable[[str], None],
        book: AllocationBook | None = None,
    ) -> None:
        self._tell = tell
        self._watch = watch
        self._end = end
        self._book = book or AllocationBook()
        self._notes: tuple[AllocationNote, ...] = ()
        self._seen: dict[str, Allocation] = {}
        """Last known state of each allocation, by cluster."""
        self._silences: dict[str, Problem] = {}
        """Why a scheduler does not report the state now, by cluster."""
        self._over: set[str] = set()
        """Clusters whose allocation has ended: schedulers are no longer asked about them."""
        self._threads = {
            source: ThreadPoolExecutor(1, thread_name_prefix=f"mntrain-{source}")
            for source in sources()
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = threading.Condition()
        self._is_closed = False
        self._asking: set[AwaitedLaunch] = set()

    def shown(self) -> tuple[WaitingLaunch, ...]:
        """Return the waiting launches, newest first."""
        return tuple(self._shown(note) for note in self._notes if self._waits(note))

    def begin(self) -> None:
        """Ask every few seconds until :meth:`pause`."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._run(source)) for source in sources()]

    def pause(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def forget(self, cluster: str) -> None:
        """Stop showing a launch and asking about it."""
        self._over.add(cluster)
        self._end(cluster)

    async def close(self) -> None:
        """Stop asking, without waiting long for a scheduler that has not answered."""
        self.pause()
        with self._lock:
            self._is_closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        # A thread of its own: the event loop's stay.
        thread = ThreadPoolExecutor(1, thread_name_prefix="mntrain-end")
        await asyncio.get_running_loop().run_in_executor(thread, self._end_looks)
        thread.shutdown(wait=False)

    def _end_looks(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._asking, CLOSE_S)
            asking = tuple(self._asking)
        for launch in asking:
            launch.close()

    async def _run(self, source: str) -> None:
        loop, asked = asyncio.get_running_loop(), list[str]()
        while True:
            look = partial(self._look, source, tuple(self._over), tuple(asked))
            found = await loop.run_in_executor(self._threads[source], look)
            if found.at is not None:
                asked = [*(name for name in asked if name != found.at.cluster), found.at.cluster]
            self._take(found)
            self._tell()
            await asyncio.sleep(LOOK_EVERY_S)

    # in the thread of a source

    def _look(self, source: str, over: Sequence[str], asked: Sequence[str]) -> _Look:
        """Ask a scheduler about one allocation: a new one first, else the least recently asked.

        Args:
            over: clusters of those about which nobody is asked.
            asked: those of the earlier looks, the latest last.
        """
        note: AllocationNote | None = None
        now: Allocation | None = None
        problem: Problem | None = None
        try:
            notes = self._book.notes()
            own = [one for one in notes if one.request.source == source and one.cluster not in over]
            turns = {name: number for number, name in enumerate(asked)}
            note = min(own, key=lambda one: turns.get(one.cluster, -1), default=None)
            if note is not None:
                now = self._asked(note)
                if not now.is_over:
                    problem = AwaitedLaunch(note, self._book).problem
                if note.jobs and now.state in ("pending", "running", "ending"):
                    with suppress(MntrainError):  # it waits all the same
                        self._watch(note.cluster)
        except MntrainError as error:
            problem = error.problem
        except Exception as error:  # noqa: BLE001 - of a source's library; the next look may succeed
            problem = Problem(kind=Kind.BROKEN, cause=f"the scheduler could not be asked: {error}")
        try:
            # Again: a job may have begun while the scheduler was asked.
            return _Look(self._book.notes(), note, now, problem)
        except (MntrainError, OSError):
            return _Look(None, note, now, problem)

    def _asked(self, note: AllocationNote) -> Allocation:
        launch = AwaitedLaunch(note, self._book)
        with self._lock:
            if self._is_closed:
                raise ClosedError("closed")
            self._asking.add(launch)
        try:
            return launch.look()
        finally:
            with self._lock:
                self._asking.discard(launch)
                self._lock.notify_all()

    # on the event loop

    def _take(self, found: _Look) -> None:
        if found.notes is not None:
            self._take_notes(found.notes)
        if found.at is None:
            return
        name, now = found.at.cluster, found.allocation
        if now is not None and (now.is_over or (now.state == "unknown" and refusal_of(now))):
            self.forget(name)
        if found.at not in self._notes:
            return  # something has begun on it since, or it was forgotten
        silence = found.problem or (now.problem if now and now.state == "unknown" else None)
        if silence is not None:
            self._silences[name] = silence
        else:
            self._silences.pop(name, None)
        if now is not None and (now.state != "unknown" or name not in self._seen):
            self._seen[name] = now

    def _take_notes(self, notes: tuple[AllocationNote, ...]) -> None:
        """Take the book's notes; drop answers about allocations whose notes have changed."""
        by_cluster = {one.cluster: one for one in notes}
        for note in self._notes:
            if by_cluster.get(note.cluster) != note:
                self._seen.pop(note.cluster, None)
        self._notes = notes

    def _waits(self, note: AllocationNote) -> bool:
        now = self._seen.get(note.cluster)
        if note.cluster in self._over or (now is None and note.cluster not in self._silences):
            return False
        if note.has_begun:
            return now is not None and now.state == "pending"
        return now is None or now.state != "ending"

    def _shown(self, note: AllocationNote) -> WaitingLaunch:
        now, silence = self._seen.get(note.cluster), self._silences.get(note.cluster)
        waiting = now.waiting if now is not None and silence is None else None
        is_forecast = waiting is not None and waiting.forecast_s(time.time()) is not None
        return WaitingLaunch(
            cluster=note.cluster,
            name=note.request.name,
            source=title_of(note.request.source),
            allocation=note.id,
            nodes=note.request.nodes,
            state="unknown" if now is None else now.state,
            why=silence or (waiting.reason if waiting else None),
            word=waiting.word if waiting else "",
            expected_start_s=waiting.expected_start_s if waiting and is_forecast else None,
            job_id=JobId(note.jobs[-1]) if note.jobs else None,
        )
