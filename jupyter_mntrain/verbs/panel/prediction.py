"""Prediction before a run: step time, bubble, link load, memory of each rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from jupyter_mntrain.families import parameters
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import Capacity, NodeInfo
from jupyter_mntrain.plan.choosing.job_plan import JobPlan
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.plan.prediction.step import (
    LeastStep,
    least_step,
    passed_by,
    ring_traffic,
    step_traffic,
)
from jupyter_mntrain.recipe.layout import make_grid
from jupyter_mntrain.recipe.memory import WIDTHS, Config, model_config, trained_parameters
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.device.peaks import known_peak
from jupyter_mntrain.telemetry.formulas import FILLED, ideal_bubble
from jupyter_mntrain.verbs.panel.looks.plan_look import PlanQuestion
from jupyter_mntrain.workload.memory_fit import RankMemory, rank_memory

Unknown = Literal["model", "no-gpu", "peak"]
"""Why there is no step time: the model's directory is not on this machine; a rank computes on a
CPU; a GPU's peak is not in the table."""


class LinkLoad(Record, frozen=True):
    """The load of one direction between two nodes.

    Args:
        seconds: least transfer time per step; ``None`` if the link was not measured.
    """

    sender: str
    receiver: str
    bytes_per_step: float
    capacity: Capacity | None
    seconds: float | None


class Prediction(Record, frozen=True):
    """The prediction for the current choices.

    Args:
        ranks: number of ranks of each pipeline.
        slots: slots of a forward and a backward pass in each rank's schedule, including empty ones.
        empty: slots in which a rank must wait even for infinitely fast peers; ``None`` where the
            schedule fills parts of them with weight gradients.
        bubble: the schedule's own; ``empty / slots`` where nothing is filled.
        links: ``None`` if the model's size is not known here.
        step: ``None`` if it is unknown.
        unknown: why there is no step time, and where.
        memory: of each rank; ``None`` if the model's size is not known here.
        question: what to plan; ``None`` if that cannot be.
        plan: the answer, once there is one.
    """

    ranks: int
    slots: int
    empty: int | None
    bubble: float
    links: tuple[LinkLoad, ...] | None
    step: LeastStep | None = None
    unknown: tuple[Unknown, str] | None = None
    memory: tuple[RankMemory, ...] | None = None
    question: PlanQuestion | None = None
    plan: JobPlan | None = None


def predict(
    recipe: Recipe, placements: Sequence[Placement], capacities: LinkCapacities
) -> Prediction:
    """Predict bubble and link load, even for a recipe that cannot run there."""
    ranks = recipe.pipeline_ranks(sum(placement.nproc for placement in placements))
    per_rank = recipe.stages_per_rank
    microbatches, schedule = recipe.microbatches, recipe.schedule
    return Prediction(
        ranks=ranks,
        slots=per_rank * microbatches + ranks - 1,
        empty=None if schedule in FILLED else ranks - 1,
        bubble=ideal_bubble(ranks, microbatches, per_rank, schedule=schedule),
        links=_links(recipe, placements, capacities),
    )


def predict_ranks(
    prediction: Prediction,
    recipe: Recipe,
    placements: Sequence[Placement],
    nodes: Sequence[NodeInfo],
) -> Prediction:
    """Add step time and memory.

    Args:
        nodes: the participants; may contain others.

    Raises:
        RecipeError: the recipe cannot run on this number of ranks.
    """
    by_id = {node.node_id: node for node in nodes}
    memory = _memory(recipe, placements, by_id)
    step, unknown = _step(recipe, placements, by_id, prediction.links)
    return msgspec.structs.replace(prediction, step=step, unknown=unknown, memory=memory)


def _memory(
    recipe: Recipe, placements: Sequence[Placement], nodes: Mapping[NodeId, NodeInfo]
) -> tuple[RankMemory, ...] | None:
    participants = [
        Participant(node=place.node, nproc=place.nproc, gpus=place.gpus) for place in placements
    ]
    infos = {place.node: nodes[place.node_id] for place in placements if place.node_id in nodes}
    found = rank_memory(recipe, participants, infos)
    return None if found is None else tuple(found)


def _step(
    recipe: Recipe,
    placements: Sequence[Placement],
    nodes: Mapping[NodeId, NodeInfo],
    links: tuple[LinkLoad, ...] | None,
) -> tuple[LeastStep | None, tuple[Unknown, str] | None]:
    """Return the least step time, or why it is unknown."""
    config = model_config(recipe)
    if config is None:
        return None, ("model", recipe.model.path or "")
    peaks: list[float] = []
    for place in placements:
        info = nodes.get(place.node_id)
        names = {gpu.index: gpu.name for gpu in info.inventory.gpus} if info else {}
        if recipe.train.device == "cpu" or not place.gpus:
            return None, ("no-gpu", place.node)
        for index in place.gpus:
            peak = known_peak(names.get(index, ""), recipe.dtype, tf32=recipe.train.tf32)
            if peak is None:
                return None, ("peak", names.get(index, place.node))
            peaks.append(peak.flops_per_s)
    link_s = max((link.seconds or 0.0 for link in links or ()), default=0.0)
    return least_step(recipe, config, peaks, link_s=link_s), None


def _links(
    recipe: Recipe, placements: Sequence[Placement], capacities: LinkCapacities
) -> tuple[LinkLoad, ...] | None:
    config = model_config(recipe)
    if config is None:
        return None
    nodes = [placement.node for placement in placements for _ in placement.ranks]
    traffic: dict[tuple[str, str], float] = {}
    for part in _traffic(recipe, config, nodes):
        traffic |= {pair: traffic.get(pair, 0.0) + size for pair, size in part.items()}
    return tuple(
        LinkLoad(
            sender=sender,
            receiver=receiver,
            bytes_per_step=count,
            capacity=capacity,
            seconds=count / capacity.payload_bytes_per_s if capacity else None,
        )
        for (sender, receiver), count in traffic.items()
        for capacity in [capacities.between(sender, receiver)]
    )


def _traffic(
    recipe: Recipe, config: Config, nodes: Sequence[str]
) -> Iterator[dict[tuple[str, str], float]]:
    """Yield bytes per step and link, for each pipeline and each ring of replicas and shards."""
    section, size = recipe.data_parallel, WIDTHS[recipe.dtype]
    grid = make_grid(recipe, len(nodes))
    for ranks in grid.pipelines:
        yield step_traffic(recipe, config, [nodes[rank] for rank in ranks])
    layers = config["num_hidden_layers"]
    shapes = trained_parameters(recipe, config, layers, is_first=True, is_last=True)
    sent = section.sent_bytes / section.sync_every if section.syncs_rarely else size
    weights = sum(map(math.prod, shapes)) * sent
    each = weights / recipe.pipeline_ranks(len(nodes)) / grid.shards
    for ring in {grid.replicas_of(rank) for rank in range(len(nodes))}:
        yield ring_traffic([nodes[rank] for rank in ring], each)
    everything = parameters(config, layers, is_first=True, is_last=True)
    passed = passed_by(recipe, everything, shapes, config["vocab_size"], layers, 1)
    # An all-reduce takes two rounds, a gather or a scatter one.
    each = passed.size / recipe.pipeline_ranks(len(nodes)) / 2
    for ring in {grid.shards_of(rank) for rank in range(len(nodes))}:
        yield ring_traffic([nodes[rank] for rank in ring], each)
