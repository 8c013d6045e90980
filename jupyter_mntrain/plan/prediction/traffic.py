"""Traffic: computes the bytes between nodes in one optimizer step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jupyter_mntrain.recipe.families import parameters
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.optimizer.optimizer_memory import WIDTHS, gradient_width
from jupyter_mntrain.recipe.optimizer.sharded_memory import end_values
from jupyter_mntrain.recipe.orders.actions import rank_of_stage
from jupyter_mntrain.recipe.rank_memory import Config, trained_parameters
from jupyter_mntrain.recipe.sections import Recipe

Shapes = Sequence[tuple[int, ...]]


def step_traffic(
    nodes: Sequence[str], stages_per_rank: int, bytes_per_boundary: float, *, is_v: bool = False
) -> dict[tuple[str, str], float]:
    """Compute the bytes from node to node in one step of a pipeline.

    Between neighboring stages, activations go forward and gradients of the same size back.

    Args:
        nodes: the node of each rank, in order.
        stages_per_rank: more than 1 for interleaved schedules.
        is_v: whether the first and last stage are on the same rank.
        bytes_per_boundary: tokens per step x hidden size x bytes per number.

    Returns:
        ``(sender, receiver) → bytes``; stages on the same node do not count.
    """
    ranks = len(nodes)
    found: dict[tuple[str, str], float] = {}
    for stage in range(ranks * stages_per_rank - 1):
        here, there = (nodes[rank_of_stage(one, ranks, is_v=is_v)] for one in (stage, stage + 1))
        if here == there:
            continue
        for pair in ((here, there), (there, here)):
            found[pair] = found.get(pair, 0.0) + bytes_per_boundary
    return found


def ring_traffic(nodes: Sequence[str], size_bytes: float) -> dict[tuple[str, str], float]:
    """Compute the bytes from node to node for one ring all-reduce of replicas' gradients.

    Args:
        nodes: the node of each replica.
        size_bytes: of one replica's gradients.
    """
    count = len(nodes)
    each = 2 * size_bytes * (count - 1) / count
    found: dict[tuple[str, str], float] = {}
    for node, after in zip(nodes, [*nodes[1:], *nodes[:1]], strict=True):
        if node != after:
            found[node, after] = found.get((node, after), 0.0) + each
    return found


def passed_bytes(recipe: Recipe, weights: Shapes, trained: Shapes, vocabulary_size: int) -> float:
    """Return the bytes that go around a ring of shards once in a step.

    Weights are gathered before the first microbatch of each pass over the schedule, and gradients
    scattered after its last. With ``reshard_after_forward``, all is done for each microbatch, and
    layers are gathered twice.

    Args:
        weights: shapes of all parameters.
        trained: of those that have gradients.
    """
    width, again = WIDTHS[recipe.dtype], recipe.data_parallel.reshard_after_forward
    passes = recipe.train.accumulation * (recipe.microbatches if again else 1)
    gathered = _values(weights)
    if again:
        gathered += gathered - end_values(weights, vocabulary_size)
    return passes * (gathered * width + _values(trained) * gradient_width(recipe))


def shard_bytes(recipe: Recipe, config: Config, layout: Layout, place: int) -> int:
    """Return the bytes that a rank sends to others with the same sharded weights in a step, and as
    many are received.

    Args:
        place: in its pipeline.
    """
    shards = recipe.data_parallel.shards
    return int(_passed_at(recipe, config, layout, place) * (shards - 1) / shards)


def _passed_at(recipe: Recipe, config: Config, layout: Layout, place: int) -> float:
    weights: list[tuple[int, ...]] = []
    trained: list[tuple[int, ...]] = []
    for stage in layout.stages_of(place):
        layers, last = len(layout.stages[stage]), layout.last_stage
        ends = {"is_first": stage == 0, "is_last": stage == last}
        weights += parameters(config, layers, **ends)
        trained += trained_parameters(recipe, config, layers, **ends)
    return passed_bytes(recipe, weights, trained, config["vocab_size"])


def _values(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes))
