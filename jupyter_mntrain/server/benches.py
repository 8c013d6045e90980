"""Benches: the collective benchmark that the page begins, and its last result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import msgspec

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport
from jupyter_mntrain.model.records.job import TERMINAL

ANSWER_S = tunables.seconds("server.bench_answer_s")


class BeginBench(Record, frozen=True, forbid_unknown_fields=True):
    """Nodes by name; empty = all that answer."""

    nodes: tuple[str, ...] = ()


class BenchState(Record, frozen=True):
    """How far a benchmark is, and the last result since this server has started.

    Args:
        doing: for people; with ``done`` of ``total`` parts of it, as far as that is known.
        problem: why the last one has no result.
    """

    is_running: bool = False
    doing: str = ""
    done: int = 0
    total: int | None = None
    report: BenchReport | None = None
    problem: Problem | None = None


class Benches:
    """Those of one server, one at a time. Safe from any thread. A page that closes ends none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(1, "mntrain-bench")
        self._work: Future[None] = Future()
        self._work.set_result(None)
        self._state = BenchState()

    def state(self) -> BenchState:
        """How far it is: at once if none runs, else after a moment."""
        wait([self._work], ANSWER_S)
        return self._state

    def begin(self, cluster: Cluster, nodes: Sequence[str]) -> BenchState:
        """Begin one; while one runs, only say how far that is.

        Raises:
            RefusedError: a job runs: either would slow down the other.
            NodeError, SpecError: the nodes cannot take part.
        """
        cluster.refuse_read_only()
        with self._lock:
            if self._work.done():
                _refuse_jobs(cluster, nodes)
                self._state = BenchState(is_running=True, report=self._state.report)
                self._work = self._threads.submit(self._run, cluster, nodes)
        return self._state

    def close(self) -> None:
        """Begin no more; what is under way ends with the cluster's connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        last = self._state.report
        try:
            progress: Progress = self
            participants = cluster.participants(nodes, progress=progress)
            report = cluster.benchmark.run(participants, progress=progress)
        except MntrainError as error:
            self._state = BenchState(report=last, problem=error.problem)
            return
        if report.failure is not None:
            self._state = BenchState(report=last, problem=report.failure)
        else:
            self._state = BenchState(report=report)

    def report(self, what: str, done: int, total: int | None) -> None:
        """Take note of how far the benchmark is."""
        self._state = msgspec.structs.replace(self._state, doing=what, done=done, total=total)


def _refuse_jobs(cluster: Cluster, nodes: Sequence[str]) -> None:
    for job in cluster.known_jobs():
        busy = {place.node for place in job.attempt.placements}
        if job.state not in TERMINAL and (not nodes or busy & set(nodes)):
            raise RefusedError(
                f"job {job.job_id} runs on {', '.join(sorted(busy))}: a benchmark would slow it "
                "down, and read too low",
                kind=Kind.JOBS_RUNNING,
                fix="wait until it has ended, or stop it",
            )
