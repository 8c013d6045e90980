"""Remedies: what the doctor can mend at once, carried out while the page asks how far it is."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from jupyter_mntrain.cluster.files.large_files import ClusterFiles
from jupyter_mntrain.doctor.finding import Remedy
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem

ANSWER_S = tunables.seconds("server.remedy_answer_s")


class RemedyState(Record, frozen=True):
    """How far a remedy is.

    Args:
        doing: for people; with ``done`` of ``total`` parts of it, as far as that is known.
        is_over: it has ended, well or with a problem; asking again begins anew.
    """

    doing: str = ""
    done: int = 0
    total: int | None = None
    is_over: bool = False
    problem: Problem | None = None


@dataclass
class _Work:
    """One that is carried out, in a thread."""

    state: RemedyState = field(default_factory=RemedyState)
    result: Future[Problem | None] = field(default_factory=Future)

    def report(self, what: str, done: int, total: int | None) -> None:
        self.state = RemedyState(doing=what, done=done, total=total)


class Remedies:
    """Those of one server. Safe from any thread. A page that closes ends none of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[Remedy, _Work] = {}
        # One at a time: each takes all that the links carry.
        self._threads = ThreadPoolExecutor(1, "mntrain-remedy")

    def carry_out(self, remedy: Remedy, files: ClusterFiles) -> RemedyState:
        """Begin it, or say how far it is: at once if it has ended, else after a moment.

        Raises:
            SpecError: it is none.
        """
        parse_large_name(remedy.push)
        with self._lock:
            work = self._works.get(remedy)
            if work is None:
                work = self._works[remedy] = _Work()
                work.result = self._threads.submit(_push, remedy, files, work)
        wait([work.result], ANSWER_S)
        if not work.result.done():
            return work.state
        with self._lock:
            self._works.pop(remedy, None)
        return RemedyState(is_over=True, problem=work.result.result())

    def close(self) -> None:
        """Begin no more of them; what is under way ends with the cluster's connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _push(remedy: Remedy, files: ClusterFiles, progress: Progress) -> Problem | None:
    name = parse_large_name(remedy.push)
    try:
        pushed = files.push(name, [remedy.node], source=remedy.source, progress=progress)
    except MntrainError as error:
        return error.problem
    return next(iter(pushed.failed.values()), None)
