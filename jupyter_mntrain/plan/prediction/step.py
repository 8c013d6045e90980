"""A step, predicted: how long it takes, who idles, which link is full, and what limits it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.costs import stage_costs, times_under
from jupyter_mntrain.plan.prediction.simulated import (
    FREE,
    SOCKET_BYTES,
    LinkTimes,
    Pair,
    Simulated,
    StageTimes,
)
from jupyter_mntrain.plan.prediction.simulator import simulate
from jupyter_mntrain.recipe.families import shape_of
from jupyter_mntrain.recipe.layout import Layout, lay_out
from jupyter_mntrain.recipe.memory import WIDTHS, Config
from jupyter_mntrain.recipe.orders import Counts, Stages, choose_counts, make_order, stages_of
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe

FULL = 0.95
"""Share of a step from which on a link or a rank that is busy sets the pace."""


Links = Mapping[Pair, LinkSpeed]
"""By sender's and receiver's rank; a pair that is missing is on one node."""


class PredictedStep(Record, frozen=True):
    """A predicted step of one pipeline, without the optimizer.

    Args:
        seconds: of all of its microbatches.
        computing_s: of each rank.
        bubbles: share of the step in which each rank does not compute.
        links: share of the step in which each link is busy.
        in_flight: microbatches of each stage; empty where the schedule fixes them.
        bottleneck: what sets the pace, in words.
    """

    seconds: float
    computing_s: tuple[float, ...]
    bubbles: tuple[float, ...]
    links: dict[Pair, float]
    in_flight: tuple[int, ...]
    bottleneck: str


def predict_step(
    recipe: Recipe,
    config: Config,
    speeds: Sequence[DeviceSpeed],
    links: Links,
    *,
    nodes: Sequence[str] | None = None,
    over_gloo: bool = False,
) -> tuple[PredictedStep, Simulated]:
    """Predict a step by walking the order that the trainer will run.

    Args:
        recipe: one that can run on this number of ranks; one pipeline of it is predicted.
        speeds: of the device of each rank of that pipeline.
        nodes: of each rank, whose links share its interface; ``None``: links are apart.
        over_gloo: whether ranks send over Gloo, as CPUs do, and not over NCCL.

    Returns:
        The prediction, and the walk of one pass over the schedule, of which a step has as many as
        it accumulates gradients.
    """
    shape = shape_of(config)
    layout = lay_out(recipe, len(speeds) * recipe.data_parallel.width, shape.layers)
    costs = stage_costs(recipe, config, layout)
    times = [
        times_under(recipe.schedule, cost, speeds[layout.rank_of(stage)], is_first=stage == 0)
        for stage, cost in enumerate(costs)
    ]
    tokens = recipe.microbatch_size * recipe.data.sequence_length
    message = tokens * config["hidden_size"] * WIDTHS[recipe.dtype]

    def link(sender: int, receiver: int) -> LinkTimes:
        found = links.get((sender, receiver))
        if found is None:
            return FREE
        held = SOCKET_BYTES / found.bytes_per_s if over_gloo else 0.0
        return LinkTimes(found.latency_s, message / found.bytes_per_s, held)

    counts = _counts(recipe, layout, times, link)
    walked = _walk(recipe, layout, times, link, counts, nodes, over_gloo=over_gloo)
    passes = recipe.train.accumulation
    ranks = range(layout.world_size)
    return (
        PredictedStep(
            seconds=passes * walked.seconds,
            computing_s=tuple(passes * walked.computing_s(rank) for rank in ranks),
            bubbles=tuple(map(walked.bubble, ranks)),
            links={pair: walked.busy(pair) for pair in walked.messages if pair in links},
            in_flight=counts.ahead if counts else (),
            bottleneck=_bottleneck(walked, links),
        ),
        walked,
    )


def _counts(
    recipe: Recipe,
    layout: Layout,
    times: Sequence[StageTimes],
    link: Callable[[int, int], LinkTimes],
) -> Counts | None:
    """Counts of each stage, as the trainer will choose them; ``None`` where they are fixed."""
    if not KINDS[recipe.schedule].is_eager:
        return None
    computing = [one.forward + one.backward for one in times]
    round_trips = [
        sum(link(*pair).seconds for pair in ((rank, rank + 1), (rank + 1, rank)))
        for rank in range(layout.world_size - 1)
    ]
    most = [recipe.microbatches] * len(times)
    return choose_counts(recipe, computing, round_trips, most)


def _walk(
    recipe: Recipe,
    layout: Layout,
    times: Sequence[StageTimes],
    link: Callable[[int, int], LinkTimes],
    counts: Counts | None,
    nodes: Sequence[str] | None,
    *,
    over_gloo: bool,
) -> Simulated:
    schedule, microbatches = recipe.schedule, recipe.microbatches
    if layout.world_size == 1:
        each = sum(one.forward + one.backward for one in times)
        alone = StageTimes(each, 0.0, 0.0, 0.0)
        order = make_order("eager-1f1b", 1, microbatches)
        return simulate(order, Stages(1), [alone], link)
    order = make_order(
        schedule,
        layout.world_size,
        microbatches,
        stages_per_rank=recipe.stages_per_rank,
        ahead=counts.ahead if counts else None,
        kept_back=counts.kept_back if counts else None,
    )
    stages = stages_of(schedule, layout.world_size, recipe.stages_per_rank)
    kind = KINDS[schedule]
    is_single = kind.most == 1 and not kind.is_eager
    return simulate(
        order,
        stages,
        times,
        link,
        is_batched=is_single,
        node_of=nodes.__getitem__ if nodes else None,
        is_one_connection=over_gloo and is_single,
    )


def _bottleneck(walked: Simulated, links: Links) -> str:
    shares = {rank: 1.0 - walked.bubble(rank) for rank in range(len(walked.computing))}
    return name_bottleneck(
        shares, {pair: walked.busy(pair) for pair in links if pair in walked.messages}
    )


def name_bottleneck(computing: Mapping[int, float], busy: Mapping[Pair, float]) -> str:
    """Name the link or the rank that is busy longest, and the idle time if neither is full.

    Args:
        computing: share of the step in which each rank computes, by rank.
        busy: share of the step in which each link between nodes is busy, by ranks.
    """
    slowest = max(computing, key=computing.__getitem__)
    share = computing[slowest]
    busiest = max(busy, key=busy.__getitem__, default=None)
    on_link = 0.0 if busiest is None else busy[busiest]
    if busiest is not None and on_link > max(share, FULL):
        return f"the link from rank {busiest[0]} to rank {busiest[1]}"
    if share >= FULL:
        return f"rank {slowest}'s device"
    if busiest is not None and on_link > share:
        return f"waiting, most of it for the link from rank {busiest[0]} to rank {busiest[1]}"
    return f"waiting; rank {slowest} computes {share:.0%} of the step"
