"""Other ways: the same batch on the same devices and links without a pipeline. Pure.

Data parallel sums all gradients once per step, in a ring, while the last microbatch's backward pass
runs.
Tensor parallelism sums activations twice per layer in each forward pass and twice
in each backward pass, while all wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import DeviceSpeed, OtherPlan
from jupyter_mntrain.plan.choosing.devices import Chain
from jupyter_mntrain.plan.choosing.priced import Choice, Task
from jupyter_mntrain.plan.choosing.rare_meetings import fully_sharded, rare_meetings
from jupyter_mntrain.plan.choosing.setups import replaced
from jupyter_mntrain.plan.choosing.update import (
    VOTES,
    agreed_seconds,
    replica_seconds,
    ring_seconds,
    ring_speed,
    update_seconds,
)
from jupyter_mntrain.plan.prediction.costs import stage_cost
from jupyter_mntrain.plan.prediction.simulated import StageTimes
from jupyter_mntrain.recipe.families import parameters, shape_of
from jupyter_mntrain.recipe.memory import (
    CUDA_BYTES,
    WIDTHS,
    MemoryEstimate,
    forecast,
    shown_bytes,
    trained_parameters,
)
from jupyter_mntrain.recipe.sections import DataParallelSection, Recipe

SUMS_PER_LAYER = 4
"""All-reduces of a layer's activations by tensor parallelism (arXiv 1909.08053, section 3)."""


def other_ways(task: Task, chain: Chain, found: Choice) -> Iterator[OtherPlan]:
    """Predict data parallelism, with sums in every step and with rare meetings, FSDP and tensor
    parallelism; nothing on a single device.

    Each with the size of microbatches, and the recomputation if that is open, that make it fastest.
    """
    ranks = len(task.devices)
    if ranks < 2:
        return
    for name, predict, parallel in (
        ("data parallel", _data_parallel, DataParallelSection(ranks)),
        ("tensor parallel", _tensor_parallel, DataParallelSection()),
    ):
        try:
            tried = [
                predict(task, recipe, name) for recipe in _without_pipeline(task, found, parallel)
            ]
        except RecipeError as error:
            yield OtherPlan(name=name, obstacle=error.cause)
        else:
            yield min(tried, key=_preference)
        if predict is _data_parallel:
            yield rare_meetings(task, chain)
            yield fully_sharded(task, chain)


def _preference(plan: OtherPlan) -> tuple[bool, float]:
    """Lower is better: what runs by its step, what does not by its memory."""
    if plan.step_s is None:
        return True, max(plan.memory_bytes)
    return False, plan.step_s


def _data_parallel(task: Task, recipe: Recipe, name: str) -> OtherPlan:
    shapes, ranks = _trained(task, recipe), len(task.devices)
    passes = recipe.train.accumulation
    compute_s, back_s = 0.0, 0.0
    for speed in _speeds(task):
        times = _whole(task, recipe, speed)
        compute_s = max(compute_s, passes * (times.forward + times.backward))
        back_s = max(back_s, times.backward)
    link = ring_speed(task.devices, task.links, range(ranks))
    exposed_s = max(0.0, replica_seconds(recipe, _values(shapes), link) - back_s)
    update_s = max(update_seconds(recipe, shapes, speed) for speed in _speeds(task))
    (estimate, *_) = forecast(recipe, task.config, ranks)
    return _result(task, name, compute_s + exposed_s + update_s, float(estimate.total))


def _tensor_parallel(task: Task, recipe: Recipe, name: str) -> OtherPlan:
    shape, ranks = shape_of(task.config), len(task.devices)
    if shape.heads % ranks:
        cause = f"{shape.heads} attention heads cannot be divided among {ranks} ranks"
        raise RecipeError(cause)
    shapes, passes = _trained(task, recipe), recipe.train.accumulation
    compute_s = max(
        passes * (times.forward + times.backward)
        for times in (_whole(task, recipe, _together(one, ranks)) for one in _speeds(task))
    )
    tokens = recipe.microbatch_size * recipe.data.sequence_length
    link = ring_speed(task.devices, task.links, range(ranks))
    each_s = ring_seconds(tokens * shape.hidden_size * WIDTHS[recipe.dtype], ranks, link)
    sums_s = passes * shape.layers * SUMS_PER_LAYER * each_s
    update_s = max(update_seconds(recipe, shapes, one, shards=ranks) for one in _speeds(task))
    (estimate, *_) = forecast(recipe, task.config, 1)
    needed = _split(estimate, ranks) + (estimate.activations + estimate.loss) / ranks
    return _result(task, name, compute_s + sums_s + update_s, needed)


def _together(speed: DeviceSpeed, ranks: int) -> DeviceSpeed:
    """Of as many devices, each with a part of every layer: their overheads do not shrink."""

    def times_ranks(given: float | None) -> float | None:
        return None if given is None else given * ranks

    return msgspec.structs.replace(
        speed,
        flops_per_s=speed.flops_per_s * ranks,
        bytes_per_s=times_ranks(speed.bytes_per_s),
        layer_bytes_per_s=times_ranks(speed.layer_bytes_per_s),
    )


def _without_pipeline(task: Task, found: Choice, parallel: DataParallelSection) -> Iterator[Recipe]:
    """Recipes of the whole model on each rank, by the size of their microbatches.

    Raises:
        RecipeError: the batch cannot be divided.
    """
    recipe, batch = found.setup.recipe, task.recipe.train.batch_size
    share, odd = divmod(batch, parallel.width)
    if odd:
        cause = f"{batch} sequences per step cannot be divided among {parallel.width} ranks"
        raise RecipeError(cause)
    kept = [recipe.checkpointing]
    if "memory.checkpointing" in task.opened:
        kept = ["none", "full"]
    for checkpointing in kept:
        alone = replaced(
            recipe,
            checkpointing=checkpointing,
            schedule="eager-1f1b",
            microbatches=1,
            split="even",
            in_flight="auto",
            kept_back="auto",
            stages_per_rank=None,
        )
        for passes in (one for one in range(1, share + 1) if share % one == 0):
            train = msgspec.structs.replace(recipe.train, accumulation=passes)
            yield msgspec.structs.replace(alone, data_parallel=parallel, train=train)


def _whole(task: Task, recipe: Recipe, speed: DeviceSpeed) -> StageTimes:
    layers = task.config["num_hidden_layers"]
    return stage_cost(recipe, task.config, layers, is_first=True, is_last=True).times(speed)


def _speeds(task: Task) -> list[DeviceSpeed]:
    """Of all devices, each once."""
    return list(dict.fromkeys(device.known_speed for device in task.devices))


def _shapes(task: Task) -> Sequence[tuple[int, ...]]:
    return parameters(task.config, task.config["num_hidden_layers"], is_first=True, is_last=True)


def _trained(task: Task, recipe: Recipe) -> Sequence[tuple[int, ...]]:
    layers = task.config["num_hidden_layers"]
    return trained_parameters(recipe, task.config, layers, is_first=True, is_last=True)


def _values(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def _split(estimate: MemoryEstimate, ranks: int) -> float:
    """Bytes of what is divided among all ranks."""
    return (estimate.weights + estimate.gradients + estimate.optimizer) / ranks


def _result(task: Task, name: str, step_s: float, needed: float) -> OtherPlan:
    sizes = tuple(needed + CUDA_BYTES * one.is_gpu for one in task.devices)
    for rank, (device, size) in enumerate(zip(task.devices, sizes, strict=True)):
        if device.memory_bytes is not None and size > device.memory_bytes:
            obstacle = f"rank {rank} ({device.node}) needs {shown_bytes(round(size))} of memory "
            obstacle += f"and has {shown_bytes(round(device.memory_bytes))}"
            return OtherPlan(name=name, obstacle=obstacle, memory_bytes=sizes)
    values, ranks = 1 + len(_shapes(task)) + VOTES, range(len(task.devices))
    step_s += agreed_seconds(values, ranks, task.devices, task.links)
    return OtherPlan(name=name, step_s=step_s, memory_bytes=sizes)
