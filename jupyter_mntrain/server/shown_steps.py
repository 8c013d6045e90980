"""Steps of jobs as the page draws them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jupyter_mntrain.cluster import JobHistory
from jupyter_mntrain.metrics.trace.job_steps import (
    not_recorded,
    pipeline_names,
    predicted_step,
    rank_names,
)
from jupyter_mntrain.metrics.trace.recorded import recorded_steps, spans_of
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.plan import StepSpans
from jupyter_mntrain.show.tables.plans.step_bars import MOST_RANKS


class ShownStep(Record, frozen=True):
    """A step to draw.

    Args:
        spans: of as many ranks as are drawn.
        names: of all ranks, for people; a span's ``peer`` is a place among them.
    """

    spans: StepSpans
    names: tuple[str, ...]


class JobTrace(Record, frozen=True):
    """The newest recorded step of a job and the predicted one, or why there is none.

    Without a recorded step nothing is predicted, either.
    """

    recorded: ShownStep | None = None
    predicted: ShownStep | None = None
    not_recorded: Problem | None = None
    not_predicted: Problem | None = None


def job_trace(history: JobHistory, read_spec: Callable[[], JobSpec]) -> JobTrace:
    """Return the recorded and the predicted step. May block.

    Args:
        read_spec: reads the job's spec with its files.
    """
    view = history.view
    known = recorded_steps(history)
    if not known:
        return JobTrace(not_recorded=not_recorded(view).problem)
    names = rank_names(view)
    recorded = _drawn(spans_of(known[max(known)]), names)
    try:
        planned = predicted_step(view, read_spec)
    except MntrainError as error:
        return JobTrace(recorded=recorded, not_predicted=error.problem)
    return JobTrace(recorded=recorded, predicted=_drawn(planned, pipeline_names(history)))


def _drawn(spans: StepSpans, names: tuple[str, ...]) -> ShownStep:
    return ShownStep(msgspec.structs.replace(spans, ranks=spans.ranks[:MOST_RANKS]), names)
