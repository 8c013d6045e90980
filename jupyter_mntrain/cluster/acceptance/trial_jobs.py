"""Trial jobs: starts the jobs of an acceptance run, and deletes all of them at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.acceptance.programs import sweeping
from jupyter_mntrain.cluster.cluster import Cluster
from jupyter_mntrain.cluster.diagnostics.smoke_step import END_S
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    FoundProcess,
    Leftovers,
    ScalingPoint,
)
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView
from jupyter_mntrain.model.records.plan import Plan

LIMIT_S = 600.0
"""A job that has not ended after this, or did not get as far as it should, has failed the run."""
CLEANUP_S = 10.0
"""How long leases may need to be given back."""


class TrialJobs:
    """Starts jobs, waits for their results, and deletes all of them.

    Args:
        is_checked: whether the doctor looks at the nodes before the first launch.
    """

    def __init__(
        self, cluster: Cluster, progress: Progress, submitted_by: str, *, is_checked: bool
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


# Timed jobs: runs the same training on increasing numbers of nodes.


RUN_S = tunables.seconds("acceptance.run_s")
FIRST_STEPS = tunables.count("acceptance.first_steps")
MOST_STEPS = 400
"""Steps of such a job, however short they are: figures are of the newest ones anyway."""


class TimedJob(NamedTuple):
    """A job that was timed; ``job`` is ``None`` if it could not be started."""

    point: ScalingPoint
    job: Job | None


def with_nodes(spec: JobSpec, count: int) -> JobSpec:
    """Return the job with only its first ``count`` nodes."""
    return msgspec.structs.replace(spec, participants=spec.participants[:count])


def with_steps(spec: JobSpec, steps: int, *, saves_every: int = 0) -> JobSpec:
    """Return the job with this number of steps.

    Args:
        saves_every: interval of its checkpoints; 0: it saves none.
    """
    settings = [
        f"train.steps={steps}",
        f"checkpoint.interval_steps={saves_every}",
        "checkpoint.at_end=false",
        "output.at_end=false",
    ]
    return program_of(spec).with_settings(settings)


def steps_for(point: ScalingPoint, nodes: int) -> int:
    """Return how many steps take long enough to be timed on this number of nodes."""
    if not point.step_s:
        return FIRST_STEPS
    wanted = round(RUN_S / point.step_s * nodes / len(point.nodes))
    return max(FIRST_STEPS, min(MOST_STEPS, wanted))


def timed(jobs: TrialJobs, spec: JobSpec, names: tuple[str, ...], steps: int) -> TimedJob:
    """Run a job to its end, and return its figures, or why it has none.

    Args:
        names: of its nodes.
    """
    point = ScalingPoint(nodes=names, ranks=spec.world_size, steps=steps)
    try:
        job = jobs.launch(with_steps(spec, steps))
    except MntrainError as error:
        return TimedJob(msgspec.structs.replace(point, problem=error.problem), None)
    point = msgspec.structs.replace(point, job_id=job.id)
    try:
        view = jobs.ended(job, f"timing it on {len(names)} of the nodes")
    except MntrainError as error:
        return TimedJob(msgspec.structs.replace(point, problem=error.problem), job)
    job.wait_for_history(CLEANUP_S)
    return TimedJob(told(point, job.summary(), view.attempt.plan), job)


def told(point: ScalingPoint, summary: JobSummary, plan: Plan | None) -> ScalingPoint:
    """Return the point with the figures of a job's summary and plan."""
    return msgspec.structs.replace(
        point,
        step_s=summary.step_s,
        tokens_per_s=summary.tokens_per_s,
        predicted_tokens_per_s=summary.predicted_tokens_per_s,
        compute=_mean(one.compute for one in summary.ranks),
        send=_mean(one.send for one in summary.ranks),
        wait=_mean(one.wait for one in summary.ranks),
        bubble=_mean(one.schedule_bubble for one in summary.ranks),
        off_plan=summary.off_plan,
        bottleneck=plan.bottleneck if plan else "",
        guesses=plan.guesses if plan else (),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


# Sweep: looks on every node for processes and leases that jobs have left behind.


class SweptProcess(Record, frozen=True):
    pid: int
    job_id: JobId
    name: str


class SweptNode(Record, frozen=True):
    """What the sweeping program reports of its node."""

    node: str
    found: tuple[SweptProcess, ...] = ()


def sweep(jobs: TrialJobs, like: JobSpec, kept: Sequence[JobId]) -> Leftovers:
    """Look for processes and leases that the jobs so far have left behind.

    Args:
        like: a job on the nodes to look at.
        kept: jobs that could not be deleted.
    """
    ids = jobs.ids
    try:
        job = jobs.launch(program_spec(sweeping, ids, like))
        jobs.ended(job, "looking for what is left")
    except MntrainError as error:
        return Leftovers(problem=error.problem, kept=tuple(kept))
    told = _told(job)
    jobs.until(lambda: not jobs.leases(of=ids), "counting leases", CLEANUP_S)
    return Leftovers(
        looked_on=tuple(one.node for one in told),
        processes=tuple(
            FoundProcess(node=one.node, pid=each.pid, job_id=each.job_id, name=each.name)
            for one in told
            for each in one.found
        ),
        leases=jobs.leases(of=ids),
        kept=tuple(kept),
    )


def _told(job: Job) -> list[SweptNode]:
    lines = (line.text for piece in job.whole_log() for line in piece)
    parts = (text.partition(sweeping.MARK) for text in lines)
    return [msgspec.json.decode(said, type=SweptNode) for _, mark, said in parts if mark]
