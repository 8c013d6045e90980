"""Smoke step: starts a job only to see whether it works, and deletes it.

A recipe makes one step with random tokens and new weights. The data of a script is not known: its
ranks import its modules, meet, and add a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.preflight.pending_job import pending_job
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.doctor.check import ORDER, Case, CheckedNode, DoctorReport
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.doctor.workload.smoke_step import SmokeStep
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import (
    FIRST_STEP_VARIABLE,
    MAIL_VARIABLE,
    WEBHOOK_VARIABLE,
)
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.model.records.doctor.trial import JobTrial, TriedNode, TriedRank, read_line
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView, PartStatus
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.telemetry.startup import mntrain_start_trial

# Probe job: one that the driver starts for an answer, and that is gone afterwards.


END_S = 10.0
"""How long the processes of a job that the driver starts for an answer may take to be gone, once
that is canceled: a benchmark, or the doctor's first step."""


@contextmanager
def probe_job(
    driver: DriverSession, launcher: AgentLauncher, spec: JobSpec, progress: Progress
) -> Iterator[Job]:
    """Start a job. An error, and Ctrl-C, too, ends and deletes it.

    Raises:
        SpecError, NodeError, RefusedError: as for :meth:`Cluster.launch`.
    """
    started = launcher.launch(spec, new_job_id(), progress=progress)
    job = Job(driver, driver.loop.run(started).job_id)
    try:
        with job.ending_with_driver():
            yield job
    except BaseException:
        delete_job(job)
        raise


def delete_job(job: Job) -> None:
    """End a job, unless it has ended, and delete it on every node that answers."""
    with suppress(MntrainError):
        if job.state not in TERMINAL:
            job.kill()
            job.wait(END_S)
        job.remove()


LIMIT_S = tunables.seconds("doctor.deep_limit_s")

NAME = "doctor"
"""Name of the temporary job."""

START_SCRIPT = f"{mntrain_start_trial.__name__.rpartition('.')[2]}.py"

TAKEN = frozenset({Kind.GPU_TAKEN, Kind.PORT_TAKEN, Kind.JOBS_RUNNING})
"""Refusals by which a job fails that starts now, and not one that starts later."""


class ClusterTrial:
    """Starts jobs to see whether they work, from :attr:`Cluster.trial`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

    def run(
        self,
        spec: JobSpec,
        report: DoctorReport,
        *,
        project: StagedProject | None = None,
        submitted_by: str = "",
        progress: Progress = SILENT,
    ) -> DoctorReport:
        """Start the job for at most ``doctor.deep_limit_s``, unless the doctor's report stops it,
        and add the result to the report. Ctrl-C ends and deletes the job.

        Busy GPUs are left alone, and so are nodes without GPUs on which a job runs.

        Args:
            spec: that a launch would start.
            report: of the doctor, on the nodes of the spec.
            project: its files, if they are on this machine.
            submitted_by: for people; default: user and host.

        Raises:
            SpecError: a node is unknown.
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()
        begun_s = self._driver.clock.time()
        infos = [find_node(one.node, self._driver.search.usable()) for one in spec.participants]
        trial = JobTrial(is_recipe=spec.runs_trainer, nodes=tuple(_nodes(spec, infos)))
        untold = _hindrance(report) or self._running(spec, infos)
        if untold is None:
            script = pending_job(spec, "", project).script
            modules = sorted(one.what for one in script.modules) if script else ()
            tried = tried_spec(spec, modules)
            trial = self._try(tried, trial, submitted_by, progress)
        else:
            trial = msgspec.structs.replace(trial, untold=untold)
        case = Case(nodes=tuple(CheckedNode(info=info) for info in infos), trial=trial)
        findings = (*report.findings, *examine(case, [SmokeStep()]))
        return msgspec.structs.replace(
            report,
            findings=tuple(sorted(findings, key=lambda one: ORDER.index(one.level))),
            took_s=report.took_s + self._driver.clock.time() - begun_s,
        )

    def _running(self, spec: JobSpec, infos: Sequence[NodeInfo]) -> Problem | None:
        """Return the problem if a running job would be disturbed."""
        wanted = {
            info.node_id: set(one.gpus) for info, one in zip(infos, spec.participants, strict=True)
        }
        for view in self._driver.live.jobs.values():
            if view.state in TERMINAL or view.state == "pending":
                continue
            for place in view.attempt.placements:
                gpus = wanted.get(place.node_id)
                if gpus is not None and (not gpus or gpus & set(place.gpus)):
                    return Problem(
                        kind=Kind.JOBS_RUNNING,
                        cause=f"the first step was not tried: job {view.job_id} runs there, and "
                        "would be disturbed",
                        fix="run the doctor again when it has ended, or for other nodes or GPUs",
                        node=place.node,
                    )
        return None

    def _try(
        self, spec: JobSpec, trial: JobTrial, submitted_by: str, progress: Progress
    ) -> JobTrial:
        launcher = self._driver.launcher(submitted_by)
        launcher.is_checked = False  # the doctor has looked already
        progress.report("starting the job for a first step", 0, None)
        try:
            with probe_job(self._driver, launcher, spec, progress) as job:
                view = job.wait(LIMIT_S, progress=progress)
                ranks = tuple(_ranks(job))
                delete_job(job)
        except MntrainError as error:
            if error.problem.kind in TAKEN:
                return msgspec.structs.replace(trial, untold=_not_tried(error.problem))
            return _failed(trial, [error.problem])
        trial = msgspec.structs.replace(_with_plan(trial, view.attempt.plan), ranks=ranks)
        if view.state == "failed":
            return _failed(trial, _problems(view))
        return msgspec.structs.replace(trial, untold=_unended(view))


def tried_spec(spec: JobSpec, modules: Sequence[str] = ()) -> JobSpec:
    """Return the job to try in place of another: on the same nodes, with the same interpreter and
    variables, but without those that notify somebody of its end.
    """
    environment = {
        name: value
        for name, value in spec.environment.items()
        if name not in (WEBHOOK_VARIABLE, MAIL_VARIABLE)
    }
    spec = msgspec.structs.replace(
        spec,
        name=NAME,
        environment=environment,
        max_restarts=0,
        min_nodes=None,
        on_nan="stop",
        on_stall="report",
        origin=None,
        priority=0,
        queue_limit_s=None,
        lost_limit_s=None,
        project=None,
        workdir=None,
    )
    if spec.runs_trainer:
        return msgspec.structs.replace(spec, environment={**environment, FIRST_STEP_VARIABLE: "1"})
    text = Path(mntrain_start_trial.__file__).read_text(encoding="utf-8")
    entry = (START_SCRIPT, *modules)
    return msgspec.structs.replace(spec, entry=entry, files={START_SCRIPT: text}, set_in={})


def _nodes(spec: JobSpec, infos: Sequence[NodeInfo]) -> Iterator[TriedNode]:
    first = 0
    for participant, info in zip(spec.participants, infos, strict=True):
        yield TriedNode(info.name, tuple(range(first, first + participant.nproc)))
        first += participant.nproc


def _hindrance(report: DoctorReport) -> Problem | None:
    """Return the problem that makes a try pointless, if any."""
    if report.can_launch:
        return None
    return Problem(
        kind=Kind.REFUSED,
        cause="the first step was not tried, as a finding stops a launch",
        fix="fix that first, then run the doctor with --deep again",
    )


def _ranks(job: Job) -> Iterator[TriedRank]:
    """Yield the ranks that have reported, read from the job's logs."""
    for piece in job.whole_log():
        for line in piece:
            if (told := read_line(line.text)) is not None:
                yield told


def _with_plan(trial: JobTrial, plan: Plan | None) -> JobTrial:
    if plan is None:
        return trial
    # Ranks with the same layers, one of each pipeline, follow each other.
    width = sum(len(one.ranks) for one in trial.nodes) // len(plan.ranks)
    nodes = tuple(
        msgspec.structs.replace(
            one,
            planned_bytes=tuple(plan.ranks[rank // width].memory_bytes for rank in one.ranks),
        )
        for one in trial.nodes
    )
    return msgspec.structs.replace(trial, nodes=nodes)


def _problems(view: JobView) -> list[Problem]:
    """Return why the job failed, and independent failures on other nodes."""
    root = view.problem or Problem(kind=Kind.ERROR, cause="the job failed")
    own = (_own_problem(part) for part in view.parts if part.node != root.node)
    return [root, *(one for one in own if one is not None)]


def _own_problem(part: PartStatus) -> Problem | None:
    found = part.problem
    is_own = found is not None and not found.is_symptom and found.node in (None, part.node)
    if found is None or not is_own or part.stopped_after_failure:
        return None
    return msgspec.structs.replace(found, node=part.node)


def _failed(trial: JobTrial, problems: Sequence[Problem]) -> JobTrial:
    """Add each node's problem to the trial; a problem that names no node applies to all."""
    by_node = {one.node: one for one in reversed(problems)}
    root = problems[0]
    is_of_all = root.node not in {one.node for one in trial.nodes}
    nodes = tuple(
        msgspec.structs.replace(one, problem=root if is_of_all else by_node.get(one.node))
        for one in trial.nodes
    )
    return msgspec.structs.replace(trial, nodes=nodes)


def _not_tried(found: Problem) -> Problem:
    return msgspec.structs.replace(found, cause=f"the first step was not tried: {found.cause}")


def _unended(view: JobView) -> Problem | None:
    """Return why the job did not make its first step; ``None`` if it did."""
    if view.state == "succeeded":
        return None
    if view.state == "canceled":
        cause = "the first step was not made: somebody ended its job"
        return Problem(kind=Kind.REFUSED, cause=cause, fix="run the doctor again")
    stalled = f": {view.stall.headline}" if view.stall else ""
    return Problem(
        kind=Kind.NODE,
        cause=f"the first step had not ended after {LIMIT_S:.0f} s{stalled}",
        fix="launch the job and follow it, or let the doctor wait longer: doctor.deep_limit_s",
    )
