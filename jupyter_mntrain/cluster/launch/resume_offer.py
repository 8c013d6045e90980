"""Resume offer: what an ended job can go on from, or what is in the way. For faces that ask before
a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from jupyter_mntrain.cluster.launch.resume import (
    Losses,
    ResumePlan,
    list_checkpoints,
    plan_resume,
)
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.ended_jobs import jobs_of_run, whole_spec
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.checkpoint import RunCheckpoints
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.plan.resume import last_reached, steps_in_all, still_running
from jupyter_mntrain.recipe.stored import recipe_of

Obstacle = Literal["running", "nothing-saved", "not-whole", "finished", "refused"]
"""Why a run cannot go on: ``running``: a job of it runs, or will. ``nothing-saved``: it has no
checkpoint. ``not-whole``: the job's nodes do not have all of the newest. ``finished``: it has made
all of its steps. ``refused``: anything else, see the problem.
"""


class ResumeOffer(Record, frozen=True):
    """What an ended job can go on from.

    Args:
        run: that it belongs to.
        newest_job: of the run.
        obstacle: why it cannot; ``None`` if it can.
        step: finished steps of the newest checkpoint; ``None`` if there is none, or a script's
            that only the nodes know.
        steps: that the recipe makes in all; ``None`` for a script, or epochs of which no rank has
            told yet how many steps they are.
        reached: the last step that the run finished.
        losses: of the steps to come.
        changes: settings and ranks that differ from the run's newest job.
        checkpoints: of the run.
        running_job: if one is in the way.
        problem: if the obstacle needs words.
    """

    job_id: JobId
    run: JobId
    newest_job: JobId
    checkpoints: RunCheckpoints
    obstacle: Obstacle | None = None
    step: int | None = None
    steps: int | None = None
    reached: int = 0
    losses: Losses = "equal"
    changes: tuple[str, ...] = ()
    running_job: JobId | None = None
    problem: Problem | None = None

    @property
    def has_whole_checkpoint(self) -> bool:
        return any(one.is_whole for one in self.checkpoints.checkpoints)


async def offer_resume(live: ClusterView, job_id: JobId) -> ResumeOffer:
    """Ask the nodes of a run what it can go on from. Raises only what :meth:`Job.view` raises."""
    view = live.job(job_id)
    chain = await jobs_of_run(live, view.run)
    listed = await list_checkpoints(live, chain)
    unknown: MntrainError | None = None
    try:
        recipe = recipe_of(await whole_spec(live, view))
    except MntrainError as error:
        recipe, unknown = None, error
    newest = max(chain, key=lambda one: one.attempt.submitted_s)
    saved = listed.checkpoints[0].step if listed.checkpoints else None
    basis = ResumeOffer(
        job_id=view.job_id,
        run=view.run,
        newest_job=newest.job_id,
        checkpoints=listed,
        step=saved,
        steps=None if recipe is None else steps_in_all(recipe, recipe, view),
        reached=last_reached(chain),
    )
    if unknown is not None:
        return _hindered(basis, chain, unknown)
    try:
        plan = await plan_resume(live, job_id, None, None, listed=listed)
    except MntrainError as error:
        return _hindered(basis, chain, error)
    return _planned(basis, plan, is_script=recipe is None)


def _hindered(basis: ResumeOffer, chain: Sequence[JobView], error: MntrainError) -> ResumeOffer:
    obstacle: Obstacle = "refused"
    running = next((one.job_id for one in chain if still_running(one)), None)
    if running is not None:
        obstacle = "running"
    elif error.kind is Kind.NO_CHECKPOINT:
        obstacle = "not-whole" if basis.checkpoints.checkpoints else "nothing-saved"
    elif basis.steps is not None and basis.step is not None and basis.step >= basis.steps:
        obstacle = "finished"
    return msgspec.structs.replace(
        basis, obstacle=obstacle, running_job=running, problem=error.problem
    )


def _planned(basis: ResumeOffer, plan: ResumePlan, *, is_script: bool) -> ResumeOffer:
    if is_script and plan.step is None and not any(basis.checkpoints.other_bytes.values()):
        return msgspec.structs.replace(basis, obstacle="nothing-saved", losses="by-script")
    return msgspec.structs.replace(basis, step=plan.step, losses=plan.losses, changes=plan.changed)
