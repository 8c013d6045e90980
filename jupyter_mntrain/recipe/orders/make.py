"""Makes the order of any schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from jupyter_mntrain.recipe.orders.actions import Actions, Stages
from jupyter_mntrain.recipe.orders.looped import interleaved, looped_bfs
from jupyter_mntrain.recipe.orders.one_stage import eager, gpipe, one_f_one_b
from jupyter_mntrain.recipe.orders.v_shaped import dualpipe_v, zbv
from jupyter_mntrain.recipe.orders.zero_bubble import eager_zero_bubble
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName


def stages_of(schedule: ScheduleName, ranks: int, per_rank: int) -> Stages:
    """Return where the stages of a pipeline lie."""
    return Stages(ranks, per_rank, is_v=KINDS[schedule].is_v)


def make_order(
    schedule: ScheduleName,
    ranks: int,
    microbatches: int,
    *,
    stages_per_rank: int = 1,
    ahead: Sequence[int] | None = None,
    kept_back: Sequence[int] | None = None,
) -> tuple[Actions, ...]:
    """Return what each rank of a pipeline does in a step, equal to what torch's runtime does.

    Args:
        ranks: of the pipeline; at least 2.
        microbatches: that the schedule can run with.
        ahead: microbatches in flight per stage of an eager schedule; by default as in 1F1B.
        kept_back: gradients of weights that each stage of eager zero bubble puts off; by default
            one more on each.
    """
    flying = None if ahead is None else tuple(ahead)
    put_off = None if kept_back is None else tuple(kept_back)
    return _make(schedule, ranks, microbatches, stages_per_rank, flying, put_off)


@lru_cache(maxsize=32)  # a search walks the same one with every split that it tries
def _make(
    schedule: ScheduleName,
    ranks: int,
    microbatches: int,
    stages_per_rank: int,
    ahead: tuple[int, ...] | None,
    kept_back: tuple[int, ...] | None,
) -> tuple[Actions, ...]:
    stages = stages_of(schedule, ranks, stages_per_rank)
    match schedule:
        case "eager-1f1b":
            return eager(ahead or range(ranks, 0, -1), microbatches)
        case "eager-zero-bubble":
            flying, put_off = ahead or range(ranks, 0, -1), kept_back or range(ranks)
            return eager_zero_bubble(flying, put_off, microbatches)
        case "gpipe":
            return gpipe(ranks, microbatches)
        case "1f1b":
            return one_f_one_b(ranks, microbatches)
        case "looped-bfs":
            return looped_bfs(stages, microbatches)
        case "interleaved-1f1b":
            return interleaved(stages, microbatches)
        case "interleaved-zero-bubble":
            return interleaved(stages, microbatches, splits_backward=True)
        case "zbv":
            return zbv(ranks, microbatches)
        case "dualpipev":
            return dualpipe_v(ranks, microbatches)
