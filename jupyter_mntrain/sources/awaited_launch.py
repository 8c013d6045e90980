"""Awaited launch: a launch that waits for its nodes, as seen by other processes of the user.

The process that asked for the nodes launches on them; any other of the user's finds the launch in
the allocation book: why it waits, which job it has become, and how to give its nodes back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from jupyter_mntrain.model.errors import MntrainError, RefusedError, error_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import private_directory
from jupyter_mntrain.model.sources.slots import told_of, write_allocation
from jupyter_mntrain.model.sources.source import Allocation, NodeSource
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.sources.allocation_book import (
    AllocationBook,
    AllocationNote,
    follow_remembered,
)
from jupyter_mntrain.sources.registry import source_named

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job
    from jupyter_mntrain.cluster.loop import LoopThread

T = TypeVar("T")

LOOK_EVERY_S = 2.0
"""Interval of asking a scheduler how an allocation is. Administrators dislike much less."""


class AwaitedLaunch:
    """A launch in one of this user's allocations, seen from any of the user's processes.

    Args:
        note: of the allocation, as it was when it was found.
        book: that the note is in.
    """

    def __init__(self, note: AllocationNote, book: AllocationBook | None = None) -> None:
        self.note = note
        self._book = book or AllocationBook()
        self._lock = threading.Lock()
        self._asking: LoopThread | None = None
        self._is_closed = False

    @classmethod
    def named(cls, cluster: str, book: AllocationBook | None = None) -> AwaitedLaunch | None:
        """Return the launch whose nodes form, or will form, a cluster."""
        book = book or AllocationBook()
        note = book.of_cluster(cluster)
        return None if note is None else cls(note, book)

    @property
    def cluster(self) -> str:
        return self.note.cluster

    def look(self) -> Allocation:
        """Ask the scheduler for the current state of the allocation."""
        return self._asked(lambda source: source.look(self.note.id, self.note.request))

    def job(self) -> str | None:
        """Return the id of the job that was launched; ``None`` if there is none yet.

        Raises:
            RefusedError: it ended without one, and its nodes were given back.
        """
        note = self._book.of_cluster(self.cluster)
        if note is None:
            raise _given_up(self.cluster)
        self.note = note
        return note.jobs[-1] if note.jobs else None

    @property
    def problem(self) -> Problem | None:
        """Return the error if the process that was to launch the job is gone, else ``None``."""
        if self.note.has_begun or not is_gone(self.cluster):
            return None
        return gone_error(self.cluster).problem

    def job_unless_over(self, now: Allocation) -> str | None:
        """Return the id of the job; ``None`` while it may still start.

        Args:
            now: what was just seen.

        Raises:
            RefusedError: the allocation has ended, will never be granted, or the scheduler knows it
                no more; or the process that was to launch on it is gone.
        """
        over = refusal_of(now)
        if over is None and is_gone(self.cluster):
            over = gone_error(self.cluster)
        # A job may have been launched since, and even have ended.
        job = self.job()
        if job is None and over is not None:
            raise over
        return job

    def wait(
        self,
        on_look: Callable[[Allocation], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> str:
        """Wait until the job is launched, and return its id. Ctrl-C ends only the wait.

        Args:
            on_look: called after each look.
            sleep: waits until the next look; what it raises ends the waiting.

        Raises:
            RefusedError: as :meth:`job_unless_over`; nothing is given back.
        """
        job = self.job()
        while job is None:
            now = self.look()
            on_look(now)
            job = self.job_unless_over(now)
            if job is None:
                sleep(LOOK_EVERY_S)
        return job

    def give_back(self, *, with_jobs: bool = False) -> Allocation | None:
        """End the allocation if no job has started in it. Returns its state before that.

        ``None`` if there is nothing to end here: it has ended, or a job holds its nodes, or may.

        Args:
            with_jobs: end it also if jobs have started in it, with those that still run.

        Raises:
            RefusedError: the source does not say how it is, and it is to be ended whatever that is.
        """
        now = self.look()
        if (with_jobs or not self.note.jobs) and (silence := silence_of(now)) is not None:
            raise silence
        return self.give_back_seen(now, with_jobs=with_jobs)

    def give_back_seen(self, now: Allocation, *, with_jobs: bool = False) -> Allocation | None:
        """Like :meth:`give_back`, but for an allocation whose state was just read."""
        holds_job = bool(self.note.jobs) and now.state != "pending" and not with_jobs
        if now.is_over or now.state == "unknown" or holds_job:
            return None
        if self.note.directory:
            told = msgspec.structs.replace(told_of(now), is_canceled=True)
            write_allocation(Path(self.note.directory), told)
        self._asked(lambda source: source.give_back(self.note.id, self.note.request))
        if not self.note.has_begun:
            self._book.forget(self.cluster)
            forget_waiting(self.cluster)
        return now

    def close(self) -> None:
        """Interrupt a request that runs in another thread. It and all later ones raise
        :class:`ClosedError`.
        """
        with self._lock:
            self._is_closed, asking = True, self._asking
        if asking is not None:
            asking.close()

    def _asked(self, ask: Callable[[NodeSource], Awaitable[T]]) -> T:
        # Loaded with what drivers need.
        from jupyter_mntrain.cluster.loop import ClosedError, LoopThread

        source = source_named(self.note.request.source)

        async def asked() -> T:
            try:
                return await ask(source)
            finally:
                await source.close()

        with closing(LoopThread(f"mntrain-{source.name}")) as loop:
            with self._lock:
                if self._is_closed:
                    raise ClosedError("closed")
                self._asking = loop
            return loop.run(asked())


def awaited_job(
    cluster: Cluster,
    on_look: Callable[[Allocation], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """Wait until the job of a queued launch has started on its nodes, and return it.

    Args:
        cluster: of the name that the launch was given, like ``Cluster("slurm-3f9a2c")``.
        on_look: told every few seconds how the allocation is: ``waiting`` says why it waits.
        sleep: waits until the next look; what it raises ends the waiting.

    Raises:
        RefusedError: there is no such launch, it has ended without a job, or its nodes will never
            be granted.
    """
    launch = AwaitedLaunch.named(cluster.name)
    if launch is None:
        raise _given_up(cluster.name)
    job = launch.wait(on_look, sleep)
    follow_remembered(cluster)
    return cluster.job(job)


def launch_log(cluster: str) -> Path:
    """Return the log of the background process that waits for a cluster's nodes."""
    return launches_folder() / f"{cluster}.log"


def refusal_of(allocation: Allocation) -> MntrainError | None:
    """Return the reason why no job can start in an allocation any more; ``None`` while one can."""
    if allocation.waiting is not None and not allocation.waiting.can_end:
        return error_of(allocation.waiting.reason)
    if (gone := allocation.problem) is not None and allocation.state == "unknown":
        # A scheduler that cannot be asked now may be later.
        return error_of(gone) if gone.kind is Kind.SCHEDULER_REFUSED else None
    if not allocation.is_over:
        return None
    if allocation.problem is not None:
        return error_of(allocation.problem)
    if allocation.outcome == "canceled":
        cause, fix = f"allocation {allocation.id} was canceled", "ask for nodes again"
    else:
        cause = f"allocation {allocation.id} has ended: its agents ended"
        fix = "see its log for why"
    return RefusedError(cause, kind=Kind.NODES_TAKEN, fix=fix)


def silence_of(allocation: Allocation) -> MntrainError | None:
    """Return why the scheduler does not tell an allocation's state; ``None`` if it does or forgot
    it.
    """
    if allocation.state != "unknown" or refusal_of(allocation) is not None:
        return None
    if allocation.problem is not None:
        return error_of(allocation.problem)
    cause = f"{allocation.source} does not say how allocation {allocation.id} is"
    return RefusedError(cause, kind=Kind.NO_SCHEDULER, fix="try again")


def _given_up(cluster: str) -> RefusedError:
    """Make the error for a launch that is not in the book: it failed, or somebody canceled it."""
    log = launch_log(cluster)
    with suppress(OSError, IndexError):
        last = log.read_text(errors="replace").strip().splitlines()[-1]
        cause = f"the launch {cluster} has ended without a job: {last}"
        return RefusedError(cause, kind=Kind.NODES_TAKEN, fix=f"see {log}, then launch again")
    cause = f"no launch {cluster} waits for nodes: it was canceled, or has failed"
    return RefusedError(cause, kind=Kind.NODES_TAKEN, fix="launch again")


# Waiting process: tells whether the process that waits for an allocation's nodes is still alive.
# It holds a lock as long as it waits, which the kernel takes from one that is killed.


LAUNCHES = "launches"

LOCKED_WITHIN_S = 1.0


def launches_folder() -> Path:
    """Return the folder for locks and logs of launches that wait for nodes."""
    return kept_folder("state") / LAUNCHES


@contextmanager
def waiting_for(cluster: str) -> Iterator[None]:
    """Hold the lock that marks this process as the one that waits for a cluster's nodes."""
    from filelock import FileLock, Timeout  # who looks at a cluster without launches needs none

    path = lock_file(cluster)
    private_directory(path.parent)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=LOCKED_WITHIN_S)  # somebody may just be looking
    except (OSError, NotImplementedError, Timeout):  # on some disks there are no locks
        forget_waiting(cluster)
    try:
        yield
    finally:
        forget_waiting(cluster)
        lock.release()


def is_gone(cluster: str) -> bool:
    """Return whether the process that waited for these nodes was killed, or its machine restarted.
    ``False`` if unknown, as on another machine: not every shared file system passes on locks.
    """
    path = lock_file(cluster)
    if not path.exists():
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        with lock.acquire(timeout=0):
            return path.exists()
    except (OSError, NotImplementedError, Timeout):
        return False


def forget_waiting(cluster: str) -> None:
    """Remove the locks of the processes that have waited."""
    for path in launches_folder().glob(f"{cluster}.*.lock"):
        path.unlink(missing_ok=True)


def gone_error(cluster: str) -> RefusedError:
    """Make the error for a launch whose waiting process is gone."""
    return RefusedError(
        f"nothing starts on the nodes of {cluster}: the process that waited for them was killed",
        kind=Kind.NOT_STARTED,
        fix=f"give them back with mntrain stop {cluster}, and launch again",
    )


def lock_file(cluster: str) -> Path:
    """Return the lock file of the process that waits, on this machine."""
    return launches_folder() / f"{cluster}.{socket.gethostname()}.lock"
