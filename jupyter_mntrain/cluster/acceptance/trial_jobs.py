"""Trial jobs: starts the jobs of an acceptance run, and deletes all of them at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Protocol

from jupyter_mntrain.cluster.diagnostics.smoke_step import END_S
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView, Participant
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.records.node_view import NodeView

LIMIT_S = 600.0
"""A job that has not ended after this, or did not get as far as it should, has failed the run."""
CLEANUP_S = 10.0
"""How long leases may need to be given back."""


class AcceptedCluster(Protocol):
    """The part of :class:`jupyter_mntrain.Cluster` that is needed to start jobs."""

    def nodes(self) -> tuple[NodeView, ...]: ...

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]: ...

    def launch(
        self,
        spec: JobSpec,
        *,
        is_queued: bool = False,
        submitted_by: str = "",
        is_checked: bool = True,
        progress: Progress = ...,
    ) -> Job: ...

    def measure(
        self, participants: Sequence[Participant] | None = None, *, progress: Progress = ...
    ) -> tuple[LinkMeasurement, ...]: ...


class TrialJobs:
    """Starts jobs, waits for their results, and deletes all of them.

    Args:
        is_checked: whether the doctor looks at the nodes before the first launch.
    """

    def __init__(
        self, cluster: AcceptedCluster, progress: Progress, submitted_by: str, *, is_checked: bool
    ) -> None:
        self._cluster, self._progress, self._submitted_by = cluster, progress, submitted_by
        self._is_checked = is_checked
        self._jobs: list[Job] = []

    @property
    def ids(self) -> tuple[JobId, ...]:
        """The ids of all jobs that were started, including deleted ones."""
        return tuple(job.id for job in self._jobs)

    def launch(self, spec: JobSpec, *, is_queued: bool = False) -> Job:
        """Start a job, or queue it.

        Raises:
            SpecError, NodeError, RefusedError: as for :meth:`Cluster.launch`.
        """
        job = self._cluster.launch(
            spec,
            is_queued=is_queued,
            submitted_by=self._submitted_by,
            is_checked=self._is_checked,
            progress=self._progress,
        )
        self._is_checked = False
        self._jobs.append(job)
        return job

    def until(
        self, is_true: Callable[[], object], what: str, limit_s: float | None = None
    ) -> float | None:
        """Wait until ``is_true()``, checked after every change. Returns the seconds that this took,
        or ``None`` after ``limit_s`` (default: the limit of a job).
        """
        limit_s = LIMIT_S if limit_s is None else limit_s
        begun_s = time.monotonic()
        changed = threading.Event()
        stop = self._cluster.subscribe(changed.set)
        try:
            while not is_true():
                waited_s = time.monotonic() - begun_s
                if waited_s >= limit_s:
                    return None
                self._progress.report(what, int(waited_s), None)
                changed.wait(min(1.0, limit_s - waited_s))
                changed.clear()
        finally:
            stop()
        return time.monotonic() - begun_s

    def ended(self, job: Job, what: str) -> JobView:
        """Wait until a job has succeeded.

        Raises:
            NodeError: it did not succeed, or not in time.
        """
        self.until(lambda: job.state in TERMINAL, what)
        view = job.view()
        if view.state == "succeeded":
            return view
        if view.problem is not None:
            raise NodeError(
                view.problem.headline,
                kind=view.problem.kind,
                fix=view.problem.fix or f"see its log: mntrain logs {job.id}",
            )
        raise NodeError(
            f"job {job.id} is {view.state} after {LIMIT_S:.0f} s",
            fix="see its log, or let it take longer: acceptance.job_limit_s",
        )

    def leases(self, of: Sequence[JobId] = (), *, but: Sequence[JobId] = ()) -> int:
        """Count the leases that nodes hold.

        Args:
            of: for these jobs; default: for any.
            but: and not for these.
        """
        held = [
            one.job_id for view in self._cluster.nodes() if view.info for one in view.info.leases
        ]
        return sum((one in of if of else True) and one not in but for one in held)

    def end(self, job: Job) -> None:
        """End a job on every node that answers, unless it has ended."""
        with suppress(MntrainError):
            if job.state not in TERMINAL:
                job.kill()
                job.wait(END_S)

    def clean(self, *, keeps: bool) -> tuple[JobId, ...]:
        """End all jobs, and delete them with their checkpoints. Returns those that remain.

        Args:
            keeps: whether they are to stay once they have ended.
        """
        left = []
        for done, job in enumerate(self._jobs):
            self._progress.report("ending and deleting its jobs", done, len(self._jobs))
            self.end(job)
            if keeps:
                continue
            try:
                job.remove(with_checkpoints=True)
            except MntrainError:
                left.append(job.id)
        return tuple(left)


def program_spec(program: ModuleType, arguments: Sequence[str], like: JobSpec) -> JobSpec:
    """Return a job that runs one of our programs on the nodes of another job.

    Args:
        like: gives nodes, interpreter and variables.
    """
    path = Path(str(program.__file__))
    return JobSpec(
        entry=(path.name, *arguments),
        files={path.name: path.read_text(encoding="utf-8")},
        participants=like.participants,
        name=f"{like.name}-{path.stem}",
        python=like.python,
        environment=like.environment,
        mixed_versions=like.mixed_versions,
    )
