"""Not finite: makes the problem of a loss or gradient that is NaN or infinite. Pure."""

from __future__ import annotations

from math import isnan
from typing import Literal

import msgspec

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank

Measure = Literal["loss", "gradient", "evaluation-loss"]


def not_finite(
    what: Measure, value: float, step: int, *, rank: Rank, node: str | None = None
) -> Problem:
    """Make the problem of a step with such a loss or gradient.

    Args:
        value: what it is.
        step: the optimizer step, from 1.
    """
    became = "NaN" if isnan(value) else "infinite"
    return Problem(
        kind=Kind.LOSS_NAN,
        cause=f"the {what.replace('-', ' ')} became {became} at step {step}",
        fix=fix_of(Kind.LOSS_NAN, step=step),
        node=node,
        rank=rank,
        step=step,
    )


def with_checkpoint(problem: Problem, saved_step: int | None) -> Problem:
    """Add the checkpoint to continue from to the fix of a bad step.

    Args:
        saved_step: step of the newest complete checkpoint.
    """
    if saved_step is None or problem.step is None or saved_step >= problem.step:
        return problem
    # The loss of a step is that of the weights before it.
    is_just_before = saved_step == problem.step - 1
    hint = f"the checkpoint of step {saved_step} is " + (
        "from just before it: if that goes wrong at once, use an older one"
        if is_just_before
        else "good"
    )
    return msgspec.structs.replace(problem, fix=f"{problem.fix}; {hint}")
