"""Job steps: the step that a plan predicted, rank names, and why no recorded step exists."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.trace.off_plan import first_pipeline
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.model.records.plan import StepSpans
from jupyter_mntrain.model.text.foreign import shown_line


def rank_names(view: JobView) -> tuple[str, ...]:
    """Return display names of a job's ranks, such as ``r0 node1``."""
    return tuple(
        f"r{rank} {shown_line(place.node)}"
        for place in view.attempt.placements
        for rank in place.ranks
    )


def pipeline_names(history: JobHistory) -> tuple[str, ...]:
    """Return the names of the ranks in the predicted step: those of the first pipeline."""
    names, plan = rank_names(history.view), history.view.attempt.plan
    return () if plan is None else tuple(names[rank] for rank in first_pipeline(history, plan))


def not_recorded(view: JobView) -> SpecError:
    """Return the error that says why a job has no recorded step."""
    if not view.spec.runs_trainer:
        cause = f"{view.job_id} runs a script: only the trainer of recipes records its steps"
        return SpecError(cause, fix="train by a recipe, or use torch.profiler in the script")
    return SpecError(
        f"{view.job_id} has not recorded a step yet", fix="try again after its third step"
    )


def predicted_step(view: JobView, read_spec: Callable[[], JobSpec]) -> StepSpans:
    """Return the step that a job's plan predicted.

    Args:
        read_spec: reads the spec with its files.

    Raises:
        SpecError: the job has no plan, or its model is not on this machine.
        RecipeError: its recipe is not one of this version.
        NodeError: no node that has its files answers.
    """
    plan = view.attempt.plan
    if plan is None:
        raise SpecError(f"{view.job_id} has no plan, so no step is predicted")
    spans = program_of(read_spec()).spans(plan)
    if spans is None:
        raise SpecError(
            f"no step is predicted: the model of {view.job_id} is not on this machine",
            fix="copy the model's config.json to the same path here",
        )
    return spans
