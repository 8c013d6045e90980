"""Choose: plans a job from its recipe, its devices and its links. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.choosing.devices import (
    Chain,
    Device,
    LinkBetween,
    make_chain,
    orders,
    participants,
)
from jupyter_mntrain.plan.choosing.newest import Newest
from jupyter_mntrain.plan.choosing.outcome import make_result
from jupyter_mntrain.plan.choosing.priced import Priced, Task
from jupyter_mntrain.plan.choosing.refusal import refusal
from jupyter_mntrain.plan.choosing.search import Searched, fits, search
from jupyter_mntrain.plan.choosing.setups import Setup, open_settings, replaced
from jupyter_mntrain.recipe.memory import Config
from jupyter_mntrain.recipe.sections import Recipe

WORTH_ANOTHER_ORDER: Final = 0.05
"""Share of a step that another order must save: the head also keeps the results of the run, and is
not to change with every measurement."""


def make_plan(
    recipe: Recipe,
    config: Config,
    devices: Sequence[Device],
    links: LinkBetween,
    *,
    order_is_free: bool = False,
    advises: bool = False,
) -> Plan:
    """Choose what a recipe leaves open, and predict the step.

    Args:
        recipe: with what depends on the devices settled, such as the dtype.
        devices: of every rank, in the order of participants.
        links: between ranks of different nodes, by their indices in ``devices``.
        order_is_free: whether participants may run in another order.
        advises: whether to find out what would help, which takes several times as long.

    Raises:
        RecipeError: the job fits nowhere, naming a rank, its node, what it lacks and the smallest
            change that would fit; or no combination of settings can run on these ranks.
    """
    task = Task(
        recipe=recipe,
        config=config,
        devices=tuple(devices),
        links=links,
        opened=open_settings(recipe),
    )

    def make() -> Plan:
        chain, searched = _searched(task, order_is_free=order_is_free)
        if searched.best is not None:
            return make_result(task, chain, searched.best, searched.second, advises=advises)
        raise refusal(task, chain, searched.lack)

    return _newest.get(task, (order_is_free, advises), make)


_newest: Newest[Plan] = Newest()


def _searched(task: Task, *, order_is_free: bool) -> tuple[Chain, Searched]:
    """The best of the order given and, if it is free, of all that are tried."""
    order = range(len(participants(task.devices)))
    given = make_chain(task.devices, task.links, task.recipe, order)
    here = given, search(task, given)
    if not order_is_free:
        return here
    for chain in _promising(task, here):
        found = search(task, chain)
        if found.best is None:
            continue
        best = here[1].best
        if best is None or found.best.step_s < best.step_s * (1 - WORTH_ANOTHER_ORDER):
            here = chain, found
    return here


def _promising(task: Task, here: tuple[Chain, Searched], most: int = 3) -> list[Chain]:
    """The orders in which the choice for the given order would take least time."""
    given, searched = here
    seen = {_look(given)}
    tried: list[tuple[float, int, Chain]] = []
    for order in orders(task.devices, task.links):
        chain = make_chain(task.devices, task.links, task.recipe, order)
        look = _look(chain)
        if look in seen:
            continue
        seen.add(look)
        if searched.best is None:
            tried.append((0.0, len(tried), chain))
            continue
        setup = searched.best.setup
        if "pipeline.split" in task.opened:
            setup = Setup(replaced(setup.recipe, split="even"))
        priced = Priced(task, chain, setup)
        split = priced.first_split()
        if split is not None:
            tried.append((priced.first(split).step_s, len(tried), chain))
    if searched.best is None:
        return [chain for _, _, chain in tried if fits(task, chain)][:most]
    return [chain for _, _, chain in sorted(tried, key=lambda one: one[:2])[:most]]


def _look(chain: Chain) -> tuple[object, ...]:
    """What decides a chain's step: equal for orders that differ only in names."""
    places = tuple(
        (*msgspec.structs.astuple(place.speed), place.memory_bytes, place.is_gpu)
        for place in chain.places
    )
    links = tuple(
        (pair, link.bytes_per_s, link.latency_s) for pair, link in sorted(chain.links.items())
    )
    return places, links
