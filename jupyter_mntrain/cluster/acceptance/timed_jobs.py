"""Timed jobs: runs the same training on increasing numbers of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.acceptance.trial_jobs import CLEANUP_S, TrialJobs
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.metrics.acceptance.acceptance_report import ScalingPoint
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.plan import Plan

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
