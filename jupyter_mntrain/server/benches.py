"""Benches: the collective benchmark that the page starts, and its newest result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.server.long_works import WorkTurns
from jupyter_mntrain.trust.shared_file import SharedFile

ANSWER_S = 1.0
"""How long a question for a benchmark that runs waits for its end before it says how far that
is."""


class BeginBench(Record, frozen=True, forbid_unknown_fields=True):
    """Nodes by name; empty = all that answer."""

    nodes: tuple[str, ...] = ()


class BenchState(Record, frozen=True):
    """The progress of a benchmark, and the newest result.

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


class _CanceledError(Exception):
    """Raised where a canceled benchmark next reports its progress."""


class NewestReports:
    """Keeps each cluster's newest result in a file, mode 0600, that servers may share.

    Args:
        path: default: ``benches.json`` in the user's state directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = path or kept_folder("state") / "benches.json"
        self._file = SharedFile(path, dict[str, BenchReport], what="the newest benchmarks")

    def of(self, cluster: str) -> BenchReport | None:
        """Return the newest result of a cluster; ``None`` without a readable one."""
        with suppress(SpecError):
            return self._file.read().get(cluster)
        return None

    def keep(self, cluster: str, report: BenchReport) -> None:
        """Replace a cluster's newest result."""
        with self._file.locked():
            known: dict[str, BenchReport] = {}
            with suppress(SpecError):
                known = self._file.read()
            self._file.write(known | {cluster: report})


class Benches:
    """The benchmarks of one server, one at a time. Thread-safe; they outlive the page.

    Args:
        turns: shared with the server's other long works.
        name: of the cluster.
    """

    def __init__(self, turns: WorkTurns, name: str, reports: NewestReports | None = None) -> None:
        self._lock = threading.Lock()
        self._turns, self._name = turns, name
        self._reports = reports or NewestReports()
        self._work: Future[BenchState] | None = None
        self._doing = BenchState(is_running=True)
        self._is_canceled = threading.Event()

    def state(self) -> BenchState:
        """Return the progress: at once if nothing runs, else after a moment."""
        if self._work is not None:
            wait([self._work], ANSWER_S)
        return self._now()

    def begin(self, cluster: Cluster, nodes: Sequence[str]) -> BenchState:
        """Start a benchmark; if one runs, only return its progress.

        Raises:
            RefusedError: a job runs: either would slow down the other.
            NodeError, SpecError: the nodes cannot take part.
        """
        cluster.refuse_read_only()
        with self._lock:
            if self._work is None or self._work.done():
                _refuse_jobs(cluster, nodes)
                self._is_canceled.clear()
                self._doing = BenchState(is_running=True, report=self._last)
                self._work = self._turns.submit(partial(self._run, cluster, nodes), self)
        return self._now()

    def cancel(self) -> BenchState:
        """Cancel the benchmark that runs, which deletes its job, or that waits for its turn."""
        with self._lock:
            if self._work is not None and not self._work.cancel():
                self._is_canceled.set()
        return self.state()

    @cached_property
    def _last(self) -> BenchReport | None:
        return self._reports.of(self._name)

    def _now(self) -> BenchState:
        work = self._work
        if work is None or work.cancelled():
            return BenchState(report=self._last)
        return work.result() if work.done() else self._doing

    def _run(self, cluster: Cluster, nodes: Sequence[str]) -> BenchState:
        try:
            _refuse_jobs(cluster, nodes)  # it may have waited
            progress: Progress = self
            participants = cluster.participants(nodes, progress=progress)
            report = cluster.benchmark.run(participants, progress=progress)
        except _CanceledError:
            return BenchState(report=self._last)
        except MntrainError as error:
            return BenchState(report=self._last, problem=error.problem)
        if report.failure is not None:
            return BenchState(report=self._last, problem=report.failure)
        self._last = report
        self._reports.keep(self._name, report)
        return BenchState(report=report)

    def report(self, what: str, done: int, total: int | None) -> None:
        """Note the benchmark's progress; end it if it was canceled."""
        if self._is_canceled.is_set():
            raise _CanceledError
        self._doing = msgspec.structs.replace(self._doing, doing=what, done=done, total=total)


def _refuse_jobs(cluster: Cluster, nodes: Sequence[str]) -> None:
    for job in cluster.known_jobs():
        busy = {place.node for place in job.attempt.placements}
        if job.state not in TERMINAL and (not nodes or busy & set(nodes)):
            raise RefusedError(
                f"job {job.job_id} runs on {', '.join(sorted(busy))}: a benchmark would slow it "
                "down, and its results would be too low",
                kind=Kind.JOBS_RUNNING,
                fix="wait until it has ended, or stop it",
            )
