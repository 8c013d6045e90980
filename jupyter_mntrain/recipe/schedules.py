"""Pipeline schedules: what each requires, and the order of eager 1F1B. Pure; imports no torch.

1F1B keeps as many microbatches in flight as there are remaining stages. On a slow link that is too
few: a stage idles until the gradient of what it has just sent returns. Eager 1F1B sends as many
ahead as the link needs, and computes backwards in the same order: its gradients equal those of 1F1B
bitwise. (The idea of more warm-up forwards is that of arXiv 2211.05322.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

ScheduleName = Literal[
    "eager-1f1b",
    "eager-zero-bubble",
    "1f1b",
    "gpipe",
    "interleaved-1f1b",
    "looped-bfs",
    "interleaved-zero-bubble",
    "zbv",
    "dualpipev",
]


class ScheduleKind(NamedTuple):
    """The requirements of a schedule.

    Args:
        stages_per_rank: by default.
        fewest: stages per rank.
        most: stages per rank; ``None`` = any number.
        is_v: the first and last stage are on the same rank.
        is_in_rounds: microbatches are processed in rounds, each of as many as there are ranks.
        splits_backward: gradients of inputs and of weights are computed separately.
        is_eager: the recipe's numbers of microbatches in flight apply.
        defers: gradients of the weights of linear layers are computed later than the rest of a
            backward pass, which autograd computes as a whole.
    """

    stages_per_rank: int = 1
    fewest: int = 1
    most: int | None = 1
    is_v: bool = False
    is_in_rounds: bool = False
    splits_backward: bool = False
    is_eager: bool = False
    defers: bool = False


KINDS: dict[ScheduleName, ScheduleKind] = {
    "eager-1f1b": ScheduleKind(is_eager=True),
    "eager-zero-bubble": ScheduleKind(is_eager=True, defers=True),
    "1f1b": ScheduleKind(),
    "gpipe": ScheduleKind(),
    "interleaved-1f1b": ScheduleKind(2, 2, None, is_in_rounds=True),
    "looped-bfs": ScheduleKind(2, 2, None),
    "interleaved-zero-bubble": ScheduleKind(2, 1, None, is_in_rounds=True, splits_backward=True),
    "zbv": ScheduleKind(2, 2, 2, is_v=True, splits_backward=True),
    "dualpipev": ScheduleKind(2, 2, 2, is_v=True, splits_backward=True),
}


BATCHED: frozenset[ScheduleName] = frozenset({"1f1b", "gpipe"})
"""Schedules that need no process groups of directions: torch batches a send with a receive, which
must be of one group, or all ranks send only one way at a time."""


def fewest_microbatches(name: ScheduleName, world_size: int, stages: int) -> int:
    """Return the smallest number of microbatches that a schedule can run with."""
    match name:
        case "eager-1f1b" | "eager-zero-bubble" | "gpipe" | "looped-bfs" | "zbv":
            return 1
        case "dualpipev":
            return stages
        case _:
            return world_size


Order = tuple[tuple[Literal["F", "B"], int], ...]
"""Forward or backward, and the microbatch."""


def in_flight(
    compute_s: Sequence[float], transfer_s: Sequence[float], microbatches: int, most: Sequence[int]
) -> tuple[int, ...]:
    """Return how many microbatches each stage sends ahead before it waits for the first gradient.

    ``n_s = n_{s+1} + 1 + ceil(c_s / t)``, with round trip c and compute time t: enough to fill a
    link's round trip with computing. With infinitely fast links it is 1F1B.

    Args:
        compute_s: forward and backward of one microbatch, per stage.
        transfer_s: round trip to the next stage, per boundary; 0 = on one machine.
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
    """Return the order in which a stage computes.

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
