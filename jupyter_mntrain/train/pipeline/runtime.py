"""Schedules on torch's pipeline runtime; the only place that uses its private API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    schedules,
)

from jupyter_mntrain.recipe.schedules import Order, ScheduleName, eager_order

private: Any = schedules

_SINGLE: dict[ScheduleName, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
_MULTI: dict[ScheduleName, Any] = {
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "looped-bfs": ScheduleLoopedBFS,
    "interleaved-zero-bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipev": getattr(private, "ScheduleDualPipeV", None),
}


_HELD_MORE = {"F": 1, "B": -1, "W": -1}
"""Change in stored microbatches per action; an input-gradient pass (I) frees nothing."""


class RuntimeChangedError(Exception):
    """This torch version's private pipeline runtime is not the one expected here."""


def make_schedule(
    name: ScheduleName,
    stages: Sequence[PipelineStage],
    microbatches: int,
    loss: Callable[..., Any],
) -> Any:
    """Make one of torch's own schedules.

    ``scale_grads`` would divide all of ``.grad`` after each call, which is wrong with accumulation
    (torchtitan#1732); the loss is scaled instead.
    """
    if name in _MULTI and stages[0].num_stages > 1:
        return _MULTI[name]([*stages], microbatches, loss_fn=loss, scale_grads=False)
    single = _SINGLE.get(name, Schedule1F1B)
    return single(stages[0], microbatches, loss_fn=loss, scale_grads=False)


def make_eager(
    stage: PipelineStage, ahead: Sequence[int], microbatches: int, loss: Callable[..., Any]
) -> Any:
    """Make eager 1F1B: one stage per rank, each with its own number of microbatches in flight.

    Raises:
        RuntimeChangedError: torch's runtime has changed.
    """
    try:
        runtime = private._PipelineScheduleRuntime(
            [stage], microbatches, loss_fn=loss, scale_grads=False
        )
        order = {
            index: _actions(index, eager_order(count, microbatches))
            for index, count in enumerate(ahead)
        }
        runtime.pipeline_order = order
        runtime._prepare_schedule_with_comms(order)
    except (AttributeError, TypeError, ValueError, AssertionError) as error:
        raise RuntimeChangedError(str(error)) from error
    return runtime


def make_forward_only(
    stages: Sequence[PipelineStage],
    stages_of: Sequence[Sequence[int]],
    microbatches: int,
    loss: Callable[..., Any],
) -> Any:
    """Make a forward-only schedule for the stages of any training schedule.

    Args:
        stages_of: the indices of each rank's stages, by rank.

    Raises:
        RuntimeChangedError: torch's runtime has changed.
    """
    forward: Order = tuple(("F", microbatch) for microbatch in range(microbatches))
    try:
        runtime = private._PipelineScheduleRuntime(
            [*stages], microbatches, loss_fn=loss, scale_grads=False
        )
        order = {
            rank: [action for stage in indices for action in _actions(stage, forward)]
            for rank, indices in enumerate(stages_of)
        }
        places = {stage: rank for rank, indices in enumerate(stages_of) for stage in indices}
        runtime.stage_index_to_group_rank = places
        for one in stages:
            one.stage_index_to_group_rank = places
        # torch's own preparation requires backwards; apart from its checks, this is all it does.
        gathered = {rank: private._add_unshard_reshard(one) for rank, one in order.items()}
        runtime.pipeline_order_with_comms = private._add_send_recv(
            gathered, stage_to_rank=places.__getitem__, num_stages=len(places)
        )
    except (AttributeError, TypeError, ValueError, AssertionError) as error:
        raise RuntimeChangedError(str(error)) from error
    return runtime


def most_held(schedule: Any, rank: int, stages: Sequence[int], microbatches: int) -> list[int]:
    """Return the microbatches stored in each of a rank's stages when their sum is largest.

    Args:
        schedule: made by this module.
        stages: indices of the rank's stages.
    """
    if isinstance(schedule, ScheduleGPipe):
        return [microbatches] * len(stages)
    order = getattr(schedule, "pipeline_order", None)
    if not order:
        left = schedule._stage.num_stages - schedule._stage.stage_index
        return [min(left, microbatches)]
    held = dict.fromkeys(stages, 0)
    most = list(held.values())
    for action in filter(None, order[rank]):
        for one in action.sub_actions or (action,):
            held[one.stage_index] += _HELD_MORE.get(one.computation_type.value, 0)
            most = max(most, list(held.values()), key=sum)
    return most


def _actions(stage: int, order: Order) -> list[Any]:
    kinds = {
        "F": private._ComputationType.FORWARD,
        "B": private._ComputationType.FULL_BACKWARD,
    }
    return [private._Action(stage, kinds[kind], microbatch) for kind, microbatch in order]
