"""Pipeline schedules: what each needs, and the order of eager 1F1B. Pure; imports no torch.

1F1B holds just as many microbatches in flight as there are stages to come. On a link that takes
time that is too few: a stage waits for the answer to what it has just sent. Eager 1F1B sends as
many ahead as the link needs, and computes the same otherwise, in the same order of backwards: its
gradients are those of 1F1B to the last bit. (Research: training §1.4; the idea of more warm-up
forwards is that of arXiv 2211.05322.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

ScheduleName = Literal[
    "eager-1f1b",
    "1f1b",
    "gpipe",
    "interleaved-1f1b",
    "looped-bfs",
    "interleaved-zero-bubble",
    "zbv",
    "dualpipev",
]


class ScheduleKind(NamedTuple):
    """What a schedule asks of a pipeline.

    Args:
        stages_per_rank: by default.
        fewest: stages per rank.
        most: stages per rank; ``None`` = any number.
        is_v: the first and the last stage are on the same rank.
        is_in_rounds: microbatches go in rounds of as many as there are ranks.
        splits_backward: gradients of inputs and of weights are computed apart.
    """

    stages_per_rank: int = 1
    fewest: int = 1
    most: int | None = 1
    is_v: bool = False
    is_in_rounds: bool = False
    splits_backward: bool = False


KINDS: dict[ScheduleName, ScheduleKind] = {
    "eager-1f1b": ScheduleKind(),
    "1f1b": ScheduleKind(),
    "gpipe": ScheduleKind(),
    "interleaved-1f1b": ScheduleKind(2, 2, None, is_in_rounds=True),
    "looped-bfs": ScheduleKind(2, 2, None),
    "interleaved-zero-bubble": ScheduleKind(2, 1, None, is_in_rounds=True, splits_backward=True),
    "zbv": ScheduleKind(2, 2, 2, is_v=True, splits_backward=True),
    "dualpipev": ScheduleKind(2, 2, 2, is_v=True, splits_backward=True),
}


def fewest_microbatches(name: ScheduleName, world_size: int, stages: int) -> int:
    """How many a schedule needs at least to run at all."""
    match name:
        case "eager-1f1b" | "gpipe" | "looped-bfs" | "zbv":
            return 1
        case "dualpipev":
            return stages
        case _:
            return world_size


Order = tuple[tuple[Literal["F", "B"], int], ...]
"""Forward or backward, and of which microbatch."""


def in_flight(
    compute_s: Sequence[float], transfer_s: Sequence[float], microbatches: int, most: Sequence[int]
) -> tuple[int, ...]:
    """How many microbatches each stage sends ahead before it waits for the first to come back.

    ``n_s = n_{s+1} + 1 + ceil(c_s / t)``: enough that what a link takes there and back is filled
    with computing. With links that take no time it is 1F1B.

    Args:
        compute_s: of forward and backward of one microbatch, per stage.
        transfer_s: there and back between a stage and the next, per boundary; 0 = on one machine.
        most: that fit into memory, per stage.
    """
    slowest = max(compute_s)
    wanted = [1]
    for transfer in reversed(transfer_s):
        ahead = math.ceil(transfer / slowest) if slowest > 0 else 0
        wanted.append(wanted[-1] + 1 + ahead)
    wanted.reverse()
    return tuple(
        max(1, min(count, microbatches, limit)) for count, limit in zip(wanted, most, strict=True)
    )


def eager_order(ahead: int, microbatches: int) -> Order:
    """What a stage computes, in order.

    Args:
        ahead: microbatches in flight, at least 1.
    """
    ahead = min(ahead, microbatches)
    order: list[tuple[Literal["F", "B"], int]] = [("F", mb) for mb in range(ahead)]
    for mb in range(microbatches):
        order.append(("B", mb))
        if mb + ahead < microbatches:
            order.append(("F", mb + ahead))
    return tuple(order)
