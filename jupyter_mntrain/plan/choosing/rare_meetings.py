"""Rare meetings: the best replicas that meet rarely on the same devices and links. Pure.

A replica is one rank, or a pipeline of several: every number of replicas that divides the ranks is
planned, each with the microbatches and the split that suit it, and as eager 1F1B: others would take
several times as long to compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import OtherPlan
from jupyter_mntrain.plan.choosing.devices import Chain, make_chain
from jupyter_mntrain.plan.choosing.priced import Choice, Priced, Task
from jupyter_mntrain.plan.choosing.search import search
from jupyter_mntrain.plan.choosing.setups import replaced
from jupyter_mntrain.recipe.devices.settled import PLANNED
from jupyter_mntrain.recipe.memory import shown_bytes
from jupyter_mntrain.recipe.parts.results import EvaluationSection
from jupyter_mntrain.recipe.schedules import ScheduleName

RARELY: Final = 50
"""Steps between two meetings of replicas, where the recipe has none."""

SCHEDULE: Final[ScheduleName] = "eager-1f1b"

COST: Final = "costs loss (2.3 % in benchmarks.rare_meetings)"
"""What its row says of quality, which no plan predicts. Measured: Llama with 8M parameters, two
replicas that met every 50 steps, after 100 steps."""


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
    fitting: list[_Found] = []
    lacks: list[tuple[float, str]] = []
    refusals: list[str] = []
    for other in _with_replicas(task, every):
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
            said = f"rank {place.ranks[0]} ({place.devices[0].node}) needs "
            said += f"{shown_bytes(round(lack.needed_bytes))} of memory and has "
            said += shown_bytes(round(lack.limit_bytes))
            lacks.append((lack.missing_bytes, said))
    if fitting:
        return _told(name, min(fitting, key=lambda one: one.choice.step_s))
    least = [said for _, said in sorted(lacks)[:1]]
    return OtherPlan(name=name, obstacle=[*least, *refusals][0])


def _with_replicas(task: Task, every: int) -> Iterator[Task]:
    """By the number of replicas, most first, with the pipeline of each left open."""
    recipe, ranks = task.recipe, len(task.devices)
    section = recipe.data_parallel
    shards = section.shards if ranks >= 2 * section.shards else 1
    groups = ranks // shards
    opened = {one for one in PLANNED if one in task.opened or one.startswith("pipeline.")}
    opened.discard("pipeline.schedule")
    apart = replaced(
        recipe,
        schedule=SCHEDULE,
        microbatches="auto",
        split="auto",
        in_flight="auto",
        kept_back="auto",
        stages_per_rank=None,
    )
    for replicas in (one for one in range(groups, 1, -1) if groups % one == 0):
        yield msgspec.structs.replace(
            task,
            opened=frozenset(opened),
            recipe=msgspec.structs.replace(
                apart,
                data_parallel=msgspec.structs.replace(
                    section, replicas=replicas, shards=shards, sync_every=every
                ),
                train=msgspec.structs.replace(recipe.train, accumulation=1),
                # When it evaluates does not change a step.
                evaluation=EvaluationSection(),
            ),
        )


def _told(name: str, found: _Found) -> OtherPlan:
    choice, section = found.choice, found.task.recipe.data_parallel
    values = {"data_parallel.replicas": str(section.replicas)}
    if section.shards > 1:
        values["data_parallel.shards"] = str(section.shards)
    if len(choice.split) > 1:
        values |= choice.chosen({"pipeline.schedule", *found.task.opened})
    room = Priced(found.task, found.chain, choice.setup).room
    return OtherPlan(
        name=name,
        chosen=values,
        step_s=choice.step_s,
        note=COST,
        memory_bytes=tuple(room.needed(choice.split, choice.counts)),
    )
