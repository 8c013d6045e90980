"""Job plan: plans a job for its devices and links, as its nodes report them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import Capacity, NodeInfo
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed, Plan, StepSpans
from jupyter_mntrain.plan.choosing.choose import make_plan
from jupyter_mntrain.plan.choosing.devices import Device, MeasuredDevice, with_equal_speeds
from jupyter_mntrain.plan.choosing.pricing import replaced
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.measured_speeds import NOTHING, KnownSpeeds, link_speeds, measurement_of
from jupyter_mntrain.plan.prediction.simulator import Pair, predicted_spans
from jupyter_mntrain.plan.prediction.speeds import (
    layer_like,
    nominal_cpu_speed,
    nominal_gpu_speed,
    speed_by,
)
from jupyter_mntrain.plan.prediction.step import predict_step
from jupyter_mntrain.recipe.devices import seats_of
from jupyter_mntrain.recipe.layout import Grid, make_grid
from jupyter_mntrain.recipe.memory import Config, model_config, refuse_model_here
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import recipe_of, resolved


class JobPlan(NamedTuple):
    """A plan, and the step that it predicts.

    Args:
        recipe: as it is planned.
        spans: of the first pipeline.
    """

    recipe: Recipe
    plan: Plan
    spans: StepSpans

    @property
    def schedule(self) -> str:
        return self.recipe.schedule

    @property
    def names(self) -> tuple[str, ...]:
        """The ranks of the first pipeline, for people: ``r0 node1``."""
        nodes = [rank.node for rank in self.plan.ranks]
        return tuple(
            f"r{number} {rank.node}"
            + (f" {rank.device.partition(',')[0]}" if nodes.count(rank.node) > 1 else "")
            for number, rank in zip(self.first_pipeline, self.plan.ranks, strict=True)
        )

    @property
    def first_pipeline(self) -> tuple[int, ...]:
        """The ranks of the first pipeline, as numbered in the job."""
        return _grid(self.recipe, self.plan).pipelines[0]


def plan_job(
    recipe: Recipe,
    participants: Sequence[Participant],
    nodes: Sequence[NodeInfo],
    *,
    given: Capacity | None = None,
    known: KnownSpeeds = NOTHING,
    order_is_free: bool = False,
    advises: bool = False,
) -> JobPlan:
    """Choose what a recipe leaves open for these nodes, and predict the step.

    Args:
        recipe: with what its devices decide.
        nodes: the participants' nodes, in the same order.
        given: the user's figure for the capacity of every link.
        known: speeds that a job had.
        order_is_free: whether participants may run in another order, which the plan then names.
        advises: whether to find out what would help, which takes several times as long.

    Raises:
        SpecError: the model is not on this machine, or the nodes share no network.
        RecipeError: the trainer cannot use the model, or the recipe cannot run on these ranks, or
            fits nowhere.
    """
    refuse_model_here(recipe)
    config = model_config(recipe)
    if config is None:
        raise SpecError(
            f"no plan: {recipe.model.path} is not on this machine",
            fix="copy the model's config.json to the same path here",
        )
    devices = tuple(
        msgspec.structs.replace(one, speed=known.devices.get((one.node, one.name), one.speed))
        for one in with_equal_speeds(tuple(_devices(recipe, config, participants, nodes)))
    )
    mute = [one for one in nodes if not one.inventory.versions.compresses]
    asked = recipe
    if mute and recipe.pipeline.transfer == "auto":
        # Their trainers do not even know the setting, so the plan does not choose it.
        asked = replaced(recipe, transfer="none")
    between = {
        (one, other): known.links.get((devices[one].node, devices[other].node), speed)
        for (one, other), speed in _links(participants, nodes, given).items()
    }
    plan = make_plan(
        asked,
        config,
        devices,
        lambda one, other: between[one, other],
        order_is_free=order_is_free,
        advises=advises,
    )
    if asked is not recipe and plan.links:
        names = ", ".join(one.name for one in mute)
        why = f"the mntrain of {names} is older and cannot; install {__version__} there"
        plan = msgspec.structs.replace(plan, uncompressed=why)
    planned = resolved(recipe, plan.chosen)
    return JobPlan(planned, plan, _spans(planned, config, plan))


def spans_as_planned(spec: JobSpec, plan: Plan) -> StepSpans | None:
    """Return the step that a job's plan predicted; ``None`` for a script, or without its model.

    Args:
        spec: with its files.

    Raises:
        RecipeError: the recipe is not one of this version.
    """
    recipe = recipe_of(spec)
    config = None if recipe is None else model_config(recipe)
    return None if recipe is None or config is None else _spans(recipe, config, plan)


def _spans(recipe: Recipe, config: Config, plan: Plan) -> StepSpans:
    grid = _grid(recipe, plan)
    links: dict[Pair, LinkSpeed] = {
        (grid.place_of(link.sender), grid.place_of(link.receiver)): link.speed
        for link in plan.links
    }
    _, walked = predict_step(
        recipe,
        config,
        [rank.speed for rank in plan.ranks],
        links,
        nodes=[rank.node for rank in plan.ranks],
        over_gloo=all(rank.device == "CPU" for rank in plan.ranks),
    )
    return predicted_spans(
        walked,
        links,
        passes=recipe.train.accumulation,
        microbatches=recipe.microbatches,
        update_s=plan.update_s,
    )


def _grid(recipe: Recipe, plan: Plan) -> Grid:
    """Return the grid of all ranks; the plan only lists those of the first pipeline."""
    return make_grid(recipe, len(plan.ranks) * recipe.data_parallel.width)


def planned_spec(spec: JobSpec, nodes: Sequence[NodeInfo]) -> tuple[JobSpec, Plan | None]:
    """Return a job with the settings that its plan chooses, and the plan, if one can be made.

    There is none for a script, for a model that only the nodes have, and where nothing fits; the
    launch reports such problems itself.

    Args:
        spec: with what its devices decide.
        nodes: the participants' nodes, in their order.
    """
    try:
        recipe = recipe_of(spec)
        if recipe is None:
            return spec, None
        plan = plan_job(recipe, spec.participants, nodes, given=given_capacity(spec)).plan
    except MntrainError:
        return spec, None
    return msgspec.structs.replace(spec, chosen={**spec.chosen, **plan.chosen}), plan


def given_capacity(spec: JobSpec) -> Capacity | None:
    """Return the user's figure for the capacity of every link."""
    rate = spec.link_capacity_bytes_per_s
    return None if rate is None else Capacity(bytes_per_s=rate, source="given")


def _devices(
    recipe: Recipe, config: Config, participants: Sequence[Participant], nodes: Sequence[NodeInfo]
) -> Iterator[MeasuredDevice]:
    """Yield the device of each rank, with its measured or else guessed speed."""
    hidden_size = config["hidden_size"]
    tokens = recipe.microbatch_size * recipe.data.sequence_length
    seats = iter(seats_of(recipe, participants, nodes))
    for participant, info in zip(participants, nodes, strict=True):
        ranks, torch = participant.nproc, info.inventory.versions.torch
        for local in range(ranks):
            seat = next(seats)
            gpu = None if seat.gpu is None else participant.gpus[local]
            one = measurement_of(info, gpu, recipe.dtype, ranks=ranks, torch=torch)
            speed = (
                _guessed_speed(recipe, info, seat.gpu, ranks)
                if one is None
                else speed_by(one, ranks=ranks, hidden_size=hidden_size, tokens=tokens)
            )
            device = Device(
                node=info.name,
                name=seat.gpu or "CPU",
                speed=speed,
                memory_bytes=seat.memory_bytes,
                is_gpu=seat.gpu is not None,
            )
            layer = None if one is None else layer_like(one, hidden_size, tokens)
            yield MeasuredDevice(device, gpu, ranks, one, layer)


def _guessed_speed(recipe: Recipe, info: NodeInfo, gpu: str | None, ranks: int) -> DeviceSpeed:
    if gpu is None:
        return nominal_cpu_speed(info.inventory.cpu_count, ranks)
    return nominal_gpu_speed(gpu.partition(", ")[2], recipe.dtype, tf32=recipe.train.tf32)


def _links(
    participants: Sequence[Participant], nodes: Sequence[NodeInfo], given: Capacity | None
) -> Mapping[Pair, LinkSpeed]:
    """Return the links between ranks on different nodes."""
    interfaces = choose_interfaces(nodes, [one.interface for one in participants])
    between = link_speeds(
        nodes, interfaces, given, is_for_many_streams=all(one.gpus for one in participants)
    )
    owners = [at for at, one in enumerate(participants) for _ in range(one.nproc)]
    return {
        (sender, receiver): between[owner, other]
        for sender, owner in enumerate(owners)
        for receiver, other in enumerate(owners)
        if owner != other
    }
