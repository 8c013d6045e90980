"""Long works: tasks that take minutes, while the page polls their progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.server.messages import DoctorAnswer

ANSWER_S = 1.0
"""How long a request for a remedy, or a first step, of the doctor waits for its end before it says
how far that is; and how long the result is kept for a page that asks late."""
KEPT_S = 60.0

T = TypeVar("T")


class WorkState(Record, frozen=True):
    """The progress of a long work.

    Args:
        doing: for people; with ``done`` of ``total`` parts of it, as far as that is known.
        is_over: it has ended, well or with a problem; asking again begins again.
        doctor: its result, if it has one.
    """

    doing: str = ""
    done: int = 0
    total: int | None = None
    is_over: bool = False
    problem: Problem | None = None
    doctor: DoctorAnswer | None = None


Do = Callable[[Progress], WorkState]
"""Does the work in a thread, and returns how it ended."""


@dataclass
class _Work:
    state: WorkState = field(default_factory=WorkState)
    result: Future[WorkState] = field(default_factory=Future)
    ended_s: float | None = None

    def report(self, what: str, done: int, total: int | None) -> None:
        self.state = WorkState(doing=what, done=done, total=total)

    def run(self, do: Do) -> WorkState:
        try:
            return do(self)
        except MntrainError as error:
            return WorkState(problem=error.problem)
        finally:
            self.ended_s = time.monotonic()

    @property
    def is_stale(self) -> bool:
        """Whether it has ended and its result was not fetched for a while."""
        return self.ended_s is not None and time.monotonic() - self.ended_s > KEPT_S


class WorkTurns:
    """Runs one long work of a server at a time.

    Each takes all that links or GPUs have, and a benchmark next to a push would read too low.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(1, "mntrain-work")
        self._last: Future[Any] | None = None

    def submit(self, do: Callable[[], T], progress: Progress) -> Future[T]:
        """Run ``do`` in a thread, after earlier works."""
        with self._lock:
            if self._last is not None and not self._last.done():
                progress.report("waiting for its turn", 0, None)
            self._last = future = self._threads.submit(do)
        return future

    def close(self) -> None:
        """Start no more works; the one that runs ends with the cluster's connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class LongWorks:
    """The long works of one server. Thread-safe; they outlive the page that started them."""

    def __init__(self, turns: WorkTurns) -> None:
        self._lock = threading.Lock()
        self._works: dict[Hashable, _Work] = {}
        self._turns = turns

    def carry_out(self, key: Hashable, do: Do) -> WorkState:
        """Start a work or return its progress: at once if it has ended, else after a moment.

        Args:
            key: who asks with the same one asks about the same work.
        """
        with self._lock:
            work = self._works.get(key)
            if work is None or work.is_stale:
                work = self._works[key] = _Work()
                work.result = self._turns.submit(partial(work.run, do), work)
        wait([work.result], ANSWER_S)
        if not work.result.done():
            return work.state
        with self._lock:
            if self._works.get(key) is work:
                del self._works[key]
        return msgspec.structs.replace(work.result.result(), is_over=True)
