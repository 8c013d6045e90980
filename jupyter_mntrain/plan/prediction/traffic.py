"""Traffic: computes the bytes between nodes in one optimizer step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jupyter_mntrain.recipe.families import parameters
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import (
    WIDTHS,
    Config,
    end_values,
    gradient_width,
    trained_parameters,
)
from jupyter_mntrain.recipe.orders import rank_of_stage
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


class Passed(NamedTuple):
    """What goes around a ring of shards once in a step.

    Args:
        gathered: bytes of weights.
        scattered: bytes of gradients.
        gathers, scatters: how many there are: one for each layer, and one for the rest of a stage.
    """

    gathered: float
    scattered: float
    gathers: int
    scatters: int

    @property
    def size(self) -> float:
        """All of its bytes."""
        return self.gathered + self.scattered


def passed_by(
    recipe: Recipe, weights: Shapes, trained: Shapes, vocabulary_size: int, layers: int, stages: int
) -> Passed:
    """Return what shards gather and scatter of these layers and stages.

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
    return Passed(
        gathered=passes * gathered * width,
        scattered=passes * _values(trained) * gradient_width(recipe),
        gathers=passes * (layers * (1 + again) + stages),
        scatters=passes * (layers + stages),
    )


def shard_bytes(recipe: Recipe, config: Config, layout: Layout, place: int) -> int:
    """Return the bytes that a rank sends to others with the same sharded weights in a step, and as
    many are received.

    Args:
        place: in its pipeline.
    """
    shards = recipe.data_parallel.shards
    return int(passed_in_step(recipe, config, layout, place).size * (shards - 1) / shards)


def passed_in_step(recipe: Recipe, config: Config, layout: Layout, place: int) -> Passed:
    """Return what shards of this place in a pipeline gather and scatter."""
    weights: list[tuple[int, ...]] = []
    trained: list[tuple[int, ...]] = []
    stages = layout.stages_of(place)
    for stage in stages:
        layers, last = len(layout.stages[stage]), layout.last_stage
        ends = {"is_first": stage == 0, "is_last": stage == last}
        weights += parameters(config, layers, **ends)
        trained += trained_parameters(recipe, config, layers, **ends)
    layers = sum(len(layout.stages[stage]) for stage in stages)
    return passed_by(recipe, weights, trained, config["vocab_size"], layers, len(stages))


def _values(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes))
