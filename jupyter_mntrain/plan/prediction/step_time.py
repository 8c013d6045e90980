"""Step time: the least that a step can take, from FLOPs, peaks and links. Pure; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.families import shape_of
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import Config
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import FILLED, stage_flops_per_token


class LeastStep(Record, frozen=True):
    """Least duration of a step. Real ones take longer: no device reaches its peak.

    Args:
        seconds: of the slowest pipeline, with the idle slots of its schedule.
        tokens_per_s: of all pipelines, at most.
        rank: computes longest; ``None`` if a link sets the pace.
    """

    seconds: float
    tokens_per_s: float
    rank: int | None


def least_step(
    recipe: Recipe, config: Config, peaks: Sequence[float], *, link_s: float = 0.0
) -> LeastStep:
    """Bound a step's duration from below.

    The rank that computes longest, plus the slots in which the schedule lets it wait for one
    microbatch of the others; with equal ranks that is ``compute / (1 - bubble)``. Recomputation,
    the optimizer and evaluation count nothing.

    Args:
        recipe: one that can run on this number of ranks.
        peaks: FLOPs per second of each rank's device.
        link_s: time that the busiest link needs for the bytes of a step.
    """
    costs = compute_s(recipe, config, peaks)
    grid = make_grid(recipe, len(peaks))
    slots = recipe.microbatches * recipe.stages_per_rank
    open_share = 1.0 - FILLED.get(recipe.schedule, 0.0)
    found = (0.0, 0)
    for ranks in grid.pipelines:
        slowest = max(ranks, key=lambda rank: costs[rank])
        others = sum(costs[rank] for rank in ranks) - costs[slowest]
        found = max(found, (costs[slowest] + open_share * others / slots, slowest))
    seconds, rank = found
    is_link = link_s > seconds
    longest = max(seconds, link_s)
    return LeastStep(
        seconds=longest,
        tokens_per_s=recipe.tokens_per_step / longest,
        rank=None if is_link else rank,
    )


def compute_s(recipe: Recipe, config: Config, peaks: Sequence[float]) -> list[float]:
    """Seconds that each rank computes in a step, at its device's peak."""
    shape, ranks = shape_of(config), len(peaks)
    layout = lay_out(recipe, ranks, shape.layers)
    grid = make_grid(recipe, ranks)
    tokens = recipe.tokens_per_step / recipe.data_parallel.width
    return [
        tokens
        * stage_flops_per_token(
            shape,
            recipe.data.sequence_length,
            layers=len(layout.layers_of(place)),
            has_head=layout.last_rank == place,
        )
        / peak
        for rank, peak in enumerate(peaks)
        for place in [grid.place_of(rank)]
    ]
