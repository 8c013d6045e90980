"""Alternatives: plans the same batch on the same devices and links for DiLoCo or FSDP. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.families import parameters, shape_of
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import DeviceSpeed, OtherPlan
from jupyter_mntrain.plan.choosing.devices import Chain, make_chain
from jupyter_mntrain.plan.choosing.pricing import (
    VOTES,
    Choice,
    Priced,
    Task,
    agreed_seconds,
    replaced,
    replica_seconds,
    ring_seconds,
    ring_speed,
    update_seconds,
)
from jupyter_mntrain.plan.choosing.search import search, search_again, sending
from jupyter_mntrain.plan.prediction.simulator import StageTimes
from jupyter_mntrain.plan.prediction.step import stage_cost
from jupyter_mntrain.recipe.memory import (
    CUDA_BYTES,
    WIDTHS,
    MemoryEstimate,
    forecast,
    shown_bytes,
    trained_parameters,
)
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.recipe.sections import OF_SYNCS, DataParallelSection, Recipe
from jupyter_mntrain.recipe.stored import PLANNED
from jupyter_mntrain.recipe.transfers import FORMATS, Transfer

# Rare syncs, and FSDP: the best of each on the same devices and links. Pure.
#
# A replica is one rank, or a pipeline of several: every number of replicas that divides the ranks
# is planned, each with the microbatches and the split that suit it, and as eager 1F1B: others would
# take several times as long to compare.


RARELY: Final = 50
"""Steps between two syncs of replicas, where the recipe has none."""

SCHEDULE: Final[ScheduleName] = "eager-1f1b"

COST: Final = "loss was 2.3 % higher in one benchmark run"
"""What its row says of quality, which no plan predicts. Measured by ``benchmarks.rare_syncs``:
Llama with 8M parameters, two replicas that synced every 50 steps, once, after 100 steps: there was
one sync before the steps whose loss counted."""

OF_PIPELINES: Final = frozenset(
    {
        *("pipeline.schedule", "pipeline.split", "pipeline.in_flight", "pipeline.deferred"),
        "pipeline.transfer",
    }
)
"""Settings that say nothing of a replica of one rank, where the recipe leaves them open."""


class _Found(NamedTuple):
    """A candidate that fits into memory."""

    task: Task
    chain: Chain
    choice: Choice


def rare_syncs(task: Task, chain: Chain) -> OtherPlan:
    """Predict the fastest layout of replicas that sync rarely.

    Args:
        chain: whose order the ranks keep.
    """
    every = task.recipe.data_parallel.sync_every or RARELY
    name = f"data parallel, sync every {every} steps"
    return _fastest(name, task, chain, _with_replicas(task, every))


def fully_sharded(task: Task, chain: Chain) -> OtherPlan:
    """Predict FSDP over all ranks: weights gathered once per step, or again in each pass.

    Args:
        chain: whose order the ranks keep.
    """
    return _fastest("FSDP", task, chain, with_shards(task))


def with_shards(task: Task) -> Iterator[Task]:
    """Yield the task with weights sharded over all ranks instead of a pipeline, first kept and then
    resharded after each layer's forward pass.
    """
    apart, ranks = _diloco_without_pipeline(task), len(task.devices)
    for again in (False, True):
        section = DataParallelSection(shards=ranks, reshard_after_forward=again)
        yield msgspec.structs.replace(
            apart, recipe=msgspec.structs.replace(apart.recipe, data_parallel=section)
        )


def _fastest(name: str, task: Task, chain: Chain, tried: Iterable[Task]) -> OtherPlan:
    """Return the fastest of these tasks that fits, or why none does."""
    fitting: list[_Found] = []
    lacks: list[tuple[float, str]] = []
    refusals: list[str] = []
    for other in tried:
        here = make_chain(other.devices, other.links, other.recipe, chain.order)
        try:
            searched = search(other, here)
        except RecipeError as error:
            refusals.append(error.cause)
            continue
        if searched.best is not None:
            fitting.append(_Found(other, here, searched.best))
        elif searched.lack is not None:
            lack, place = searched.lack, here.places[searched.lack.place]
            rank, device = place.smallest
            said = f"rank {rank} ({device.node}) needs "
            said += f"{shown_bytes(round(lack.needed_bytes))} of memory and has "
            said += shown_bytes(round(lack.limit_bytes))
            lacks.append((lack.missing_bytes, said))
    if fitting:
        return _told(name, task, min(fitting, key=lambda one: one.choice.step_s))
    least = [said for _, said in sorted(lacks)[:1]]
    return OtherPlan(name=name, obstacle=[*least, *refusals][0])


def _diloco_without_pipeline(task: Task) -> Task:
    """Return the task with its pipeline left to the plan, and without gradient accumulation."""
    recipe = task.recipe
    opened = {one for one in PLANNED if one in task.opened or one.startswith("pipeline.")}
    opened.discard("pipeline.schedule")
    # A list is for the boundaries of one layout.
    transfer = recipe.pipeline.transfer if isinstance(recipe.pipeline.transfer, str) else "auto"
    again = replaced(
        recipe,
        schedule=SCHEDULE,
        microbatches="auto",
        split="auto",
        in_flight="auto",
        deferred="auto",
        transfer=transfer,
        stages_per_rank=None,
    )
    train = msgspec.structs.replace(recipe.train, accumulation=1)
    return msgspec.structs.replace(
        task, opened=frozenset(opened), recipe=msgspec.structs.replace(again, train=train)
    )


def _with_replicas(task: Task, every: int) -> Iterator[Task]:
    """Yield the task for each number of replicas, most first, with their pipelines left to the
    plan.
    """
    apart, ranks = _diloco_without_pipeline(task), len(task.devices)
    recipe, section = apart.recipe, task.recipe.data_parallel
    shards = section.shards if ranks >= 2 * section.shards else 1
    groups = ranks // shards
    for replicas in (one for one in range(groups, 1, -1) if groups % one == 0):
        yield msgspec.structs.replace(
            apart,
            recipe=msgspec.structs.replace(
                recipe,
                data_parallel=msgspec.structs.replace(
                    section,
                    replicas=replicas,
                    shards=shards,
                    sync_every=every,
                    reshard_after_forward=False,
                ),
                # At syncs only.
                evaluation=msgspec.structs.replace(
                    recipe.evaluation,
                    interval_steps=_at_syncs(recipe.evaluation.interval_steps, every),
                ),
            ),
        )


def _at_syncs(steps: int, every: int) -> int:
    """Round an evaluation interval to a multiple of the sync interval; 0 is never."""
    return max(1, round(steps / every)) * every if steps else 0


def _told(name: str, given: Task, found: _Found) -> OtherPlan:
    choice = found.choice
    room = Priced(found.task, found.chain, choice.setup).room
    on_host = max(room.on_host(choice.split, choice.counts))
    host = f"; up to {shown_bytes(round(on_host))} per rank in host memory" if on_host else ""
    return OtherPlan(
        name=name,
        chosen=_differing(given, found),
        step_s=choice.step_s,
        note=COST + host if found.task.recipe.data_parallel.syncs_rarely else "",
        memory_bytes=tuple(room.needed(choice.split, choice.counts)),
    )


def _differing(given: Task, found: _Found) -> dict[str, str]:
    """Return the chosen settings and all others that differ from the recipe, to run this plan."""
    choice, recipe = found.choice, found.task.recipe
    section, is_alone = recipe.data_parallel, len(choice.split) == 1
    values = {
        "data_parallel.replicas": section.replicas,
        "data_parallel.shards": section.shards,
        "data_parallel.sync_every": section.sync_every,
        **{f"data_parallel.{name}": getattr(section, name) for name in OF_SYNCS},
        "data_parallel.reshard_after_forward": section.reshard_after_forward,
        "train.accumulation": recipe.train.accumulation,
        "evaluation.interval_steps": recipe.evaluation.interval_steps,
        "pipeline.stages_per_rank": 1,
    }
    words = {name: json.dumps(value) for name, value in values.items()}
    words |= {"pipeline.in_flight": "auto", "pipeline.deferred": "auto"}
    words["pipeline.transfer"] = "auto"
    words |= choice.chosen(PLANNED)
    shown = {}
    for name, word in words.items():
        own = _own(given.recipe, name)
        is_shown = own != word
        if name in given.opened:
            is_shown = word != "auto" and not (is_alone and name in OF_PIPELINES)
        if is_shown:
            shown[name] = word
    return shown


def _own(recipe: Recipe, name: str) -> str:
    """Return a recipe's value, in TOML without quotes."""
    if name == "pipeline.stages_per_rank":
        return str(recipe.pipeline.stages_per_rank or 1)
    section, _, field = name.partition(".")
    value = getattr(getattr(recipe, section), field)
    return value if isinstance(value, str) else json.dumps(value)


# Other transfers: the same batch on the same pipeline, with messages between nodes sent otherwise.


TRANSFERS: Final[Mapping[Transfer, str]] = {
    "none": "nothing compressed",
    "bfloat16": "bfloat16 between nodes",
    "int8": "8 bits between nodes",
    "int8-int4": "8 bits between nodes, gradients in 4",
    "int4": "4 bits between nodes",
}
"""What is said of each, from the most bytes to the fewest."""

LOSSY: Final = "costs loss, see transfer in docs/recipe_parallel.md"


def other_transfers(task: Task, chain: Chain, found: Choice) -> Iterator[OtherPlan]:
    """Predict each other way to send between nodes; nothing where nothing is sent so."""
    for transfer, best in searched_transfers(task, chain, found):
        yield OtherPlan(
            name=TRANSFERS[transfer],
            chosen=best.chosen({*task.opened, "pipeline.transfer"}),
            step_s=best.step_s,
            memory_bytes=tuple(
                Priced(task, chain, best.setup).room.needed(best.split, best.counts)
            ),
            note=LOSSY if "int4" in FORMATS[transfer] else "",
        )


def searched_transfers(
    task: Task, chain: Chain, found: Choice
) -> Iterator[tuple[Transfer, Choice]]:
    """Yield the other ways to send between nodes that differ in what is sent, each with its best
    choice, from the most bytes to the fewest.
    """
    crossed = Priced(task, chain, found.setup).price.boundaries
    plain = FORMATS["none"]
    own = {one.formats for one in crossed if one.ranks in chain.links}
    for transfer in TRANSFERS if own else ():
        is_own = FORMATS[transfer] in (own - {plain} or own)
        if is_own or (transfer == "bfloat16" and task.recipe.dtype == "bfloat16"):
            continue
        best = search_again(sending(task, transfer), chain, found)
        if best is not None:
            yield transfer, best


# Other ways: the same batch on the same devices and links without a pipeline. Pure.
#
# Data parallel sums all gradients once per step, in a ring, while the last microbatch's backward
# pass runs. Tensor parallelism sums activations twice per layer in each forward pass and twice in
# each backward pass, while all wait.


SUMS_PER_LAYER = 4
"""All-reduces of a layer's activations by tensor parallelism (arXiv 1909.08053, section 3)."""


def other_ways(task: Task, chain: Chain, found: Choice) -> Iterator[OtherPlan]:
    """Predict data parallelism, with sums in every step and with rare syncs, FSDP and tensor
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
            yield rare_syncs(task, chain)
            yield fully_sharded(task, chain)


def _preference(plan: OtherPlan) -> tuple[bool, float]:
    """Return a sort key, lower is better: plans that fit by step time, others by memory."""
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
    """Return the joint speed of devices that split every layer; their overheads do not shrink."""

    def times_ranks(given: float | None) -> float | None:
        return None if given is None else given * ranks

    return msgspec.structs.replace(
        speed,
        flops_per_s=speed.flops_per_s * ranks,
        bytes_per_s=times_ranks(speed.bytes_per_s),
        layer_bytes_per_s=times_ranks(speed.layer_bytes_per_s),
    )


def _without_pipeline(task: Task, found: Choice, parallel: DataParallelSection) -> Iterator[Recipe]:
    """Yield recipes with the whole model on each rank, for each microbatch size.

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
            deferred="auto",
            transfer="none",
            stages_per_rank=None,
        )
        for passes in (one for one in range(1, share + 1) if share % one == 0):
            train = msgspec.structs.replace(recipe.train, accumulation=passes)
            yield msgspec.structs.replace(alone, data_parallel=parallel, train=train)


def _whole(task: Task, recipe: Recipe, speed: DeviceSpeed) -> StageTimes:
    layers = task.config["num_hidden_layers"]
    return stage_cost(recipe, task.config, layers, is_first=True, is_last=True).times(speed)


def _speeds(task: Task) -> list[DeviceSpeed]:
    """Return the distinct speeds of all devices."""
    return list(dict.fromkeys(device.known_speed for device in task.devices))


def _shapes(task: Task) -> Sequence[tuple[int, ...]]:
    return parameters(task.config, task.config["num_hidden_layers"], is_first=True, is_last=True)


def _trained(task: Task, recipe: Recipe) -> Sequence[tuple[int, ...]]:
    layers = task.config["num_hidden_layers"]
    return trained_parameters(recipe, task.config, layers, is_first=True, is_last=True)


def _values(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def _split(estimate: MemoryEstimate, ranks: int) -> float:
    """Return each rank's share of the sharded memory, in bytes."""
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
