"""Rare meetings, and FSDP: the best of each on the same devices and links. Pure.

A replica is one rank, or a pipeline of several: every number of replicas that divides the ranks is
planned, each with the microbatches and the split that suit it, and as eager 1F1B: others would take
several times as long to compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import OtherPlan
from jupyter_mntrain.plan.choosing.devices import Chain, make_chain
from jupyter_mntrain.plan.choosing.priced import Choice, Priced, Task
from jupyter_mntrain.plan.choosing.search import search
from jupyter_mntrain.plan.choosing.setups import replaced
from jupyter_mntrain.recipe.memory import shown_bytes
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.recipe.sections import OF_MEETINGS, DataParallelSection, Recipe
from jupyter_mntrain.recipe.stored import PLANNED

RARELY: Final = 50
"""Steps between two meetings of replicas, where the recipe has none."""

SCHEDULE: Final[ScheduleName] = "eager-1f1b"

COST: Final = "loss was 2.3 % higher in one benchmark run"
"""What its row says of quality, which no plan predicts. Measured by ``benchmarks.rare_meetings``:
Llama with 8M parameters, two replicas that met every 50 steps, once, after 100 steps: there was one
meeting before the steps whose loss counted."""

OF_PIPELINES: Final = frozenset(
    {"pipeline.schedule", "pipeline.split", "pipeline.in_flight", "pipeline.kept_back"}
)
"""Settings that say nothing of a replica of one rank, where the recipe leaves them open."""


class _Found(NamedTuple):
    """A layout that fits."""

    task: Task
    chain: Chain
    choice: Choice


def rare_meetings(task: Task, chain: Chain) -> OtherPlan:
    """Predict the fastest layout of replicas that meet rarely.

    Args:
        chain: whose order the ranks keep.
    """
    every = task.recipe.data_parallel.sync_every or RARELY
    name = f"data parallel, meeting every {every} steps"
    return _fastest(name, task, chain, _with_replicas(task, every))


def fully_sharded(task: Task, chain: Chain) -> OtherPlan:
    """Predict FSDP over all ranks: weights gathered once per step, or again in each pass.

    Args:
        chain: whose order the ranks keep.
    """
    return _fastest("FSDP", task, chain, with_shards(task))


def with_shards(task: Task) -> Iterator[Task]:
    """With weights sharded over all ranks in place of a pipeline; then also dropped after each
    layer.
    """
    apart, ranks = _without_pipeline(task), len(task.devices)
    for again in (False, True):
        section = DataParallelSection(shards=ranks, reshard_after_forward=again)
        yield msgspec.structs.replace(
            apart, recipe=msgspec.structs.replace(apart.recipe, data_parallel=section)
        )


def _fastest(name: str, task: Task, chain: Chain, tried: Iterable[Task]) -> OtherPlan:
    """The fastest of these that fits, or why none does."""
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


def _without_pipeline(task: Task) -> Task:
    """With all that a pipeline has left open, and one pass over the schedule."""
    recipe = task.recipe
    opened = {one for one in PLANNED if one in task.opened or one.startswith("pipeline.")}
    opened.discard("pipeline.schedule")
    again = replaced(
        recipe,
        schedule=SCHEDULE,
        microbatches="auto",
        split="auto",
        in_flight="auto",
        kept_back="auto",
        stages_per_rank=None,
    )
    train = msgspec.structs.replace(recipe.train, accumulation=1)
    return msgspec.structs.replace(
        task, opened=frozenset(opened), recipe=msgspec.structs.replace(again, train=train)
    )


def _with_replicas(task: Task, every: int) -> Iterator[Task]:
    """By the number of replicas, most first, with the pipeline of each left open."""
    apart, ranks = _without_pipeline(task), len(task.devices)
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
                # At meetings only.
                evaluation=msgspec.structs.replace(
                    recipe.evaluation,
                    interval_steps=_at_meetings(recipe.evaluation.interval_steps, every),
                ),
            ),
        )


def _at_meetings(steps: int, every: int) -> int:
    """The nearest number of steps between evaluations that are made at meetings; 0 is never."""
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
        note=COST + host if found.task.recipe.data_parallel.meets_rarely else "",
        memory_bytes=tuple(room.needed(choice.split, choice.counts)),
    )


def _differing(given: Task, found: _Found) -> dict[str, str]:
    """What is chosen, and all else that is not as the recipe has it: with these values it runs."""
    choice, recipe = found.choice, found.task.recipe
    section, is_alone = recipe.data_parallel, len(choice.split) == 1
    values = {
        "data_parallel.replicas": section.replicas,
        "data_parallel.shards": section.shards,
        "data_parallel.sync_every": section.sync_every,
        **{f"data_parallel.{name}": getattr(section, name) for name in OF_MEETINGS},
        "data_parallel.reshard_after_forward": section.reshard_after_forward,
        "train.accumulation": recipe.train.accumulation,
        "evaluation.interval_steps": recipe.evaluation.interval_steps,
        "pipeline.stages_per_rank": 1,
    }
    words = {name: json.dumps(value) for name, value in values.items()}
    words |= {"pipeline.in_flight": "auto", "pipeline.kept_back": "auto"}
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
    """A recipe's value, in TOML without quotes."""
    if name == "pipeline.stages_per_rank":
        return str(recipe.pipeline.stages_per_rank or 1)
    section, _, field = name.partition(".")
    value = getattr(getattr(recipe, section), field)
    return value if isinstance(value, str) else json.dumps(value)
