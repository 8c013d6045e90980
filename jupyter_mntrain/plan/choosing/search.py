"""Search: finds the fastest step on a chain of places that fits into their memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from jupyter_mntrain.families import families
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.choosing.devices import Chain
from jupyter_mntrain.plan.choosing.pricing import (
    ALIKE,
    Choice,
    Priced,
    Setup,
    Shortfall,
    Task,
    make_setups,
)

# Newest: what was asked for lately is not computed again.
#
# A panel, its launch and the launcher plan the same job.


T = TypeVar("T")

KEPT: Final = 64
MOST_KEPT_RANKS: Final = 32
"""Ranks up to which results are cached: comparing more ranks' links outlasts many searches."""


class Newest(Generic[T]):
    """A cache of the newest results, by task."""

    def __init__(self) -> None:
        self._kept: dict[bytes, T] = {}

    def get(self, task: Task, more: object, make: Callable[[], T]) -> T:
        """Return the cached result for a task and what else decides it; errors are not cached."""
        if len(task.devices) > MOST_KEPT_RANKS:
            return make()
        known = (task.recipe, task.config, task.devices, _links(task), sorted(task.opened), more)
        key = msgspec.msgpack.encode(known)
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = make()
        return self._kept[key]


def _links(task: Task) -> list[LinkSpeed]:
    nodes = [device.node for device in task.devices]
    pairs = permutations(range(len(nodes)), 2)
    return [task.links(one, other) for one, other in pairs if nodes[one] != nodes[other]]


# Search: the fastest step on a chain of places that fits into their memory. Pure.
#
# Setups are priced from the lowest bound up, each with the split whose slowest place is fastest,
# and the microbatches in flight of the trainer's formula. What comes near the best is then refined:
# layers are moved and counts changed as long as that shortens the step. Of what is within 1 %, the
# simplest wins.


NEAR: Final = 0.05
"""Share of a step by which a setup may be slower before it is refined."""

MOST_REFINED: Final = 8


class Searched(NamedTuple):
    """The result of a search.

    Args:
        best: of all; ``None`` if nothing fits.
        second: the fastest of another schedule, number of microbatches or recomputation.
        lack: of the setup that comes nearest, if nothing fits.
    """

    best: Choice | None
    second: Choice | None
    lack: Shortfall | None


def search(task: Task, chain: Chain) -> Searched:
    """Find the best choice for a chain.

    Raises:
        RecipeError: no combination of settings can run on this number of ranks.
    """
    return _newest.get(task, chain.order, lambda: _search(task, chain))


_newest: Newest[Searched] = Newest()


def _search(task: Task, chain: Chain) -> Searched:
    setups = _setups(task, chain)
    rough = sorted(
        ((priced.least(), priced) for priced in (Priced(task, chain, one) for one in setups)),
        key=lambda one: (one[0], one[1].setup.simplicity),
    )
    lack: Shortfall | None = None
    found: list[tuple[Choice, Priced]] = []
    best_s = inf
    for least_s, priced in rough:
        if least_s > best_s * (1 + ALIKE):
            break
        split = priced.first_split()
        if split is None:
            short = priced.lack
            if short is not None and (lack is None or short.missing_bytes < lack.missing_bytes):
                lack = short
        elif priced.bound(split) <= best_s * (1 + ALIKE):
            first = priced.first(split)
            found.append((first, priced))
            best_s = min(best_s, first.step_s)
    if not found:
        return Searched(None, None, lack)
    refined = [priced.refine(one) for one, priced in _to_refine(found, best_s)]
    every = [*refined, *(one for one, _ in found)]
    best = simplest(every)
    others = [one for one in every if one.settings != best.settings and one.step_s >= best.step_s]
    return Searched(best, min(others, key=lambda one: one.step_s, default=None), None)


def fits(task: Task, chain: Chain) -> bool:
    """Whether any setup fits into the memory of a chain."""
    setups = _setups(task, chain)
    plain = sorted(setups, key=lambda one: one.simplicity)
    return any(Priced(task, chain, one).first_split() is not None for one in plain)


def _setups(task: Task, chain: Chain) -> list[Setup]:
    family = families().get(task.config.get("model_type", ""))
    return make_setups(
        task.recipe,
        len(chain.indices),
        task.config["num_hidden_layers"],
        task.opened,
        splits_backward=family is None or family.splits_backward,
    )


def simplest(found: Sequence[Choice]) -> Choice:
    """Return the simplest choice within 1 % of the fastest."""
    best_s = min(one.step_s for one in found)
    near = [one for one in found if one.step_s <= best_s * (1 + ALIKE)]
    key = min(one.setup.simplicity for one in near)
    return min((one for one in near if one.setup.simplicity == key), key=lambda one: one.step_s)


def _to_refine(
    found: Sequence[tuple[Choice, Priced]], best_s: float
) -> list[tuple[Choice, Priced]]:
    """Return the fastest choices, and the simplest of those that are nearly as fast."""
    near = [one for one in found if one[0].step_s <= best_s * (1 + NEAR)]
    most = MOST_REFINED if near[0][1].is_small else 2
    fastest = sorted(near, key=lambda one: one[0].step_s)[: most // 2]
    plain = sorted(near, key=lambda one: one[0].setup.simplicity)
    chosen = {id(one): one for one in [*fastest, *plain]}
    return list(chosen.values())[:most]
