"""Began again: whether a restarted script started from the beginning. Pure."""

from __future__ import annotations

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.origin import Earlier

FIRST_STEP = 1


def _before(earlier: Earlier) -> str:
    return "an earlier job of this run" if earlier.attempt is None else f"attempt {earlier.attempt}"


def began_again(
    step: RankStep, earlier: Earlier | None, spec: JobSpec, *, has_checkpoints: bool = False
) -> Problem | None:
    """Warn if a rank's step is step 1 although an earlier attempt came further.

    A script that does not say its steps may have gone on from a checkpoint: it is warned only if
    there is none.

    Args:
        earlier: the earlier attempts; ``None`` in the first one.
        has_checkpoints: anything is in the job's checkpoint directory on this node.
    """
    reached = earlier.step if earlier else None
    if earlier is None or reached is None or reached <= FIRST_STEP or step.step != FIRST_STEP:
        return None
    if step.is_counted and (has_checkpoints or earlier.saved_step is not None):
        return None
    fix = fix_of(Kind.BEGAN_AGAIN)
    if spec.runs_trainer:
        fix = fix_of(Kind.BEGAN_AGAIN, "trainer")
    elif earlier.saved_step is not None:
        fix = fix_of(Kind.BEGAN_AGAIN, "saved", step=earlier.saved_step)
    return Problem(
        kind=Kind.BEGAN_AGAIN,
        cause=f"began at step 1 again: {_before(earlier)} had reached step {reached}",
        fix=fix,
        rank=step.rank,
        step=FIRST_STEP,
        time_s=step.time_s,
    )
