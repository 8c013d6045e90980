"""Schedules on torch's pipeline runtime, whose private API they use (as does directions.py)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    schedules,
)

from jupyter_mntrain.recipe.instructions import (
    Counts,
    Slot,
    StageAction,
    with_weights,
    zero_bubble_slots,
)
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.train.model.stages import Stage
from jupyter_mntrain.train.pipeline.directions import ReceiveStream, post

private: Any = schedules

_SINGLE: dict[ScheduleName, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
_MULTI: dict[ScheduleName, Any] = {
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "looped-bfs": ScheduleLoopedBFS,
    "interleaved-zero-bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipev": getattr(private, "ScheduleDualPipeV", None),
}

_STEP = inspect.signature(ScheduleGPipe.step).parameters

NO_OUTPUTS: Mapping[str, bool] = {"return_outputs": False} if "return_outputs" in _STEP else {}
"""Arguments that keep a schedule from merging the last stage's outputs. torch 2.9 has none: it
holds and merges them."""

_HELD_MORE = {"F": 1, "B": -1, "W": -1}
"""Change in stored microbatches per action; an input-gradient pass (I) frees nothing."""

_HELD_MORE_IF_DEFERRED = {"F": 1, "B": -1, "I": -1}
"""Likewise; what is kept beyond that until the gradients of weights is not counted."""


class RuntimeChangedError(Exception):
    """The private pipeline runtime of this torch version is not the expected one."""


def make_schedule(
    name: ScheduleName,
    stages: Sequence[Stage],
    microbatches: int,
    loss: Callable[..., Any],
) -> Any:
    """Make one of torch's own schedules.

    ``scale_grads`` would divide all of ``.grad`` after each call, which is wrong with accumulation
    (torchtitan#1732); the loss is scaled instead.
    """
    if name in _MULTI and stages[0].num_stages > 1:
        made = _MULTI[name]([*stages], microbatches, loss_fn=loss, scale_grads=False)
        made = _on_runtime(made, stages, microbatches, loss)
        _exchange_by_direction(made, stages)
        return made
    single = _SINGLE.get(name, Schedule1F1B)
    stages[0].receiving = None
    return single(stages[0], microbatches, loss_fn=loss, scale_grads=False)


def _on_runtime(
    made: Any, stages: Sequence[Stage], microbatches: int, loss: Callable[..., Any]
) -> Any:
    """Run a schedule on torch's newer runtime.

    In torch 2.9, most schedules use an older one, in which the rank at the tip of a V sends to
    itself.
    """
    if isinstance(made, private._PipelineScheduleRuntime):
        return made
    runtime = private._PipelineScheduleRuntime(
        [*stages], microbatches, loss_fn=loss, scale_grads=False
    )
    runtime.stage_index_to_group_rank = made.stage_index_to_group_rank
    order = {rank: [*filter(None, actions)] for rank, actions in made.pipeline_order.items()}
    runtime.pipeline_order = order
    runtime._prepare_schedule_with_comms(order)
    return runtime


def make_eager(stage: Stage, counts: Counts, microbatches: int, loss: Callable[..., Any]) -> Any:
    """Make an eager 1F1B schedule, or eager zero bubble if stages defer weight gradients.

    There is one stage per rank, each with its own counts.

    Raises:
        RuntimeChangedError: torch's runtime has changed.
    """
    try:
        runtime = private._PipelineScheduleRuntime(
            [stage], microbatches, loss_fn=loss, scale_grads=False
        )
        order = {
            index: _actions(zero_bubble_slots(index, *held, microbatches))
            for index, held in enumerate(zip(*counts, strict=True))
        }
        runtime.pipeline_order = order
        runtime._prepare_schedule_with_comms(order)
        if any(counts.deferred):
            _receive_earlier(runtime)
        _exchange_by_direction(runtime, [stage])
    except (AttributeError, TypeError, ValueError, AssertionError) as error:
        raise RuntimeChangedError(str(error)) from error
    return runtime


def _receive_earlier(runtime: Any) -> None:
    """Post receives as if there were no weight gradients.

    torch takes one action of each rank in turn to place its receives: next to a rank with more
    actions, one with fewer would begin to receive only when it needs what was sent.
    """
    prepared = runtime.pipeline_order_with_comms
    kinds = private._ComputationType
    messages, weights = (
        {kinds.SEND_F, kinds.RECV_F, kinds.SEND_B, kinds.RECV_B},
        kinds.BACKWARD_WEIGHT,
    )
    silent = {
        rank: [one for one in actions if one.computation_type not in messages]
        for rank, actions in prepared.items()
    }
    exchanged = private._add_send_recv(
        {
            rank: [one for one in actions if one.computation_type != weights]
            for rank, actions in silent.items()
        },
        stage_to_rank=runtime.stage_index_to_group_rank.__getitem__,
        num_stages=len(prepared),
    )
    runtime.pipeline_order_with_comms = {
        rank: with_weights(exchanged[rank], actions, lambda one: one.computation_type == weights)
        for rank, actions in silent.items()
    }


def make_forward_only(
    stages: Sequence[Stage],
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
    try:
        runtime = private._PipelineScheduleRuntime(
            [*stages], microbatches, loss_fn=loss, scale_grads=False
        )
        order = {
            rank: _actions(
                (StageAction("F", stage, one),) for stage in indices for one in range(microbatches)
            )
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
        _exchange_by_direction(runtime, stages)
    except (AttributeError, TypeError, ValueError, AssertionError) as error:
        raise RuntimeChangedError(str(error)) from error
    return runtime


def most_held(
    schedule: Any, rank: int, stages: Sequence[int], microbatches: int, *, defers: bool = False
) -> list[int]:
    """Return the microbatches stored in each of a rank's stages when their sum is largest.

    Args:
        schedule: made by this module.
        stages: indices of the rank's stages.
        defers: an input-gradient pass frees what autograd has saved.
    """
    if isinstance(schedule, ScheduleGPipe):
        return [microbatches] * len(stages)
    order = getattr(schedule, "pipeline_order", None)
    if not order:
        left = schedule._stage.num_stages - schedule._stage.stage_index
        return [min(left, microbatches)]
    changes = _HELD_MORE_IF_DEFERRED if defers else _HELD_MORE
    held = dict.fromkeys(stages, 0)
    most = list(held.values())
    for action in filter(None, order[rank]):
        for one in action.sub_actions or (action,):
            held[one.stage_index] += changes.get(one.computation_type.value, 0)
            most = max(most, list(held.values()), key=sum)
    return most


def _exchange_by_direction(schedule: Any, stages: Sequence[Stage]) -> None:
    """Use a process group for each direction, and post receives while stages compute.

    The runtime, unlike torch's older schedules, begins each send and receive by itself, so they may
    be of different groups.
    """
    if not isinstance(schedule, private._PipelineScheduleRuntime):
        return
    stream = ReceiveStream(stages[0].device)
    for stage in stages:
        stage.receiving = stream
    by_index = {stage.stage_index: stage for stage in stages}

    def receive_activation(action: Any, _context: Any) -> None:
        stage, microbatch = by_index[action.stage_index], action.microbatch_index
        with stream.posting():
            works = post(stage.get_fwd_recv_ops(microbatch))
        schedule.fwd_recv_ops[stage.stage_index, microbatch] = works

    def receive_gradient(action: Any, _context: Any) -> None:
        stage, microbatch = by_index[action.stage_index], action.microbatch_index
        with stream.posting():
            works = post(stage.get_bwd_recv_ops(microbatch))
        schedule.bwd_recv_ops[stage.stage_index, microbatch] = works

    # Without it, receives stay on the computing stream: slower over NCCL, and as right.
    functions = getattr(schedule, "_comp_type_to_function_map", {})
    functions[private._ComputationType.RECV_F] = receive_activation
    functions[private._ComputationType.RECV_B] = receive_gradient


def _actions(slots: Iterable[Slot]) -> list[Any]:
    kinds = {
        "F": private._ComputationType.FORWARD,
        "B": private._ComputationType.FULL_BACKWARD,
        "I": private._ComputationType.BACKWARD_INPUT,
        "W": private._ComputationType.BACKWARD_WEIGHT,
    }
    return [
        private._Action(one.stage, kinds[one.kind], one.microbatch)
        for slot in slots
        for one in slot
    ]
