"""Tracing: which steps a rank records action by action, and what it did in them.

The marks are those by which every step is measured. A recorded step only reads more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.metrics import TracedAction
from jupyter_mntrain.train.pipeline.steps import QueuedStep
from jupyter_mntrain.train.pipeline.stopwatch import Mark, Stopwatch, Timed

EVERY = tunables.count("telemetry.trace_steps")
MOST_ACTIONS = tunables.count("telemetry.trace_actions")

FIRST = 3
"""First step with the numbers of microbatches in flight that are kept; see ``STEADY_AFTER``."""


def is_traced(made: int) -> bool:
    """Whether a step is recorded: 3, 5, 10, 20, 50, …, and later one in :data:`EVERY`.

    A short run has some, and a long one does not fill its journal. All ranks decide alike.

    Args:
        made: steps of this attempt, this one included.
    """
    if made >= EVERY:
        return made % EVERY == 0
    digits = str(made).rstrip("0")
    return made == FIRST or (made > FIRST and digits in {"1", "2", "5"})


def actions_of(
    step: QueuedStep, stopwatch: Stopwatch, microbatches: int
) -> tuple[TracedAction, ...]:
    """Return what this rank did in a step that the device has passed, in order of begin.

    Args:
        microbatches: of one pass over the schedule.
    """
    marks = step.marks

    def at(mark: Mark) -> float:
        return round(stopwatch.seconds(marks.before, mark), 7)

    found = [*_computed(step.metered.timed, stopwatch, microbatches, marks.before)]
    passes: Counter[tuple[str, int, int]] = Counter()
    for one in step.metered.posted:
        key = (one.kind, one.stage, one.microbatch)
        microbatch = passes[key] * microbatches + one.microbatch
        passes[key] += 1
        found.append(
            TracedAction(one.kind, at(one.at), at(one.at), one.stage, microbatch, one.peer)
        )
    for begin, end in ((marks.passed, marks.squared), (marks.agreed, marks.updated)):
        found.append(TracedAction("update", at(begin), at(end)))
    found.sort(key=lambda one: one.begin_s)
    return tuple(found[:MOST_ACTIONS])


def _computed(
    timed: list[Timed], stopwatch: Stopwatch, microbatches: int, origin: Mark
) -> Iterator[TracedAction]:
    """Yield what was computed, each forward pass with its loss."""
    passes: Counter[tuple[str, int, int]] = Counter()
    for index, one in enumerate(timed):
        if one.kind is None:
            continue
        key = (one.kind, one.stage, one.microbatch)
        microbatch = passes[key] * microbatches + one.microbatch
        passes[key] += 1
        after = timed[index + 1] if index + 1 < len(timed) else one
        last = after.end if after.kind is None else one.end
        begin, end = (stopwatch.seconds(origin, mark) for mark in (one.begin, last))
        yield TracedAction(one.kind, round(begin, 7), round(end, 7), one.stage, microbatch)
