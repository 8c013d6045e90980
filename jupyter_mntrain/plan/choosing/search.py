"""Search: finds the fastest step on a chain of places that fits into their memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from jupyter_mntrain.families import families
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.choosing.devices import Chain, make_chain
from jupyter_mntrain.plan.choosing.pricing import (
    ALIKE,
    Choice,
    Priced,
    Room,
    Setup,
    Shortfall,
    Task,
    make_setups,
    replaced,
)
from jupyter_mntrain.recipe.transfers import FORMATS, Transfer

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
#
# Where messages between nodes may be compressed, that is done if the step is then so much faster,
# and only on those links on which it helps.


NEAR: Final = 0.05
"""Share of a step by which a setup may be slower before it is refined."""

MOST_REFINED: Final = 8

MOST_SEARCHED: Final = 16
"""Ranks up to which everything is chosen again after a change; of more, only the split and the
counts."""

AUTOMATIC: Final[Transfer] = "int8"
"""How a plan compresses if nobody says otherwise: fewer bits cost loss."""

WORTH_COMPRESSING: Final = 1.2
"""Times as fast from which a plan compresses what is sent between nodes."""

WORTH_SEARCHING: Final = 1.05
"""Times as fast that compression alone must be for other settings to be looked for with it."""


class Searched(NamedTuple):
    """The result of a search.

    Args:
        best: of all; ``None`` if nothing fits.
        second: the fastest of another schedule, number of microbatches or recomputation.
        lack: of the setup that comes nearest, if nothing fits.
        plain: the best without compression, if the best compresses because that is worth it.
    """

    best: Choice | None
    second: Choice | None
    lack: Shortfall | None
    plain: Choice | None = None


def search(task: Task, chain: Chain) -> Searched:
    """Find the best choice for a chain.

    Raises:
        RecipeError: no combination of settings can run on this number of ranks.
    """
    return _newest.get(task, chain.order, lambda: _search(task, chain))


_newest: Newest[Searched] = Newest()


def _search(task: Task, chain: Chain) -> Searched:
    if task.recipe.pipeline.transfer != "auto" or not chain.links:
        return _search_settings(task, chain)
    rooms: Rooms = {}
    plain = _search_settings(sending(task, "none"), chain, rooms)
    if plain.best is None:
        return plain
    most_s = plain.best.step_s / WORTH_COMPRESSING
    same = _with_transfers(task, chain, plain.best, AUTOMATIC)
    if same is None or plain.best.step_s < WORTH_SEARCHING * same.step_s:
        return plain
    found = _search_settings(sending(task, AUTOMATIC), chain, rooms, most_s=most_s)
    if found.best is None or found.best.step_s > most_s:
        return plain
    best = _where_it_helps(task, chain, found.best, most_s)
    if best is None:
        return plain
    return found._replace(best=best, second=found.second or plain.second, plain=plain.best)


def search_again(task: Task, chain: Chain, found: Choice) -> Choice | None:
    """Return the best choice for a task that was changed; ``None`` if nothing fits. Of many ranks,
    only the split and the counts are chosen again.

    Args:
        chain: whose order the ranks keep.
        found: before the change.
    """
    changed = make_chain(task.devices, task.links, task.recipe, chain.order)
    if len(task.devices) <= MOST_SEARCHED:
        return search(task, changed).best
    recipe = found.setup.recipe
    if task.recipe.pipeline.transfer != "auto":
        recipe = replaced(recipe, transfer=task.recipe.pipeline.transfer)
    if "pipeline.split" in task.opened:
        recipe = replaced(recipe, split="even")
    priced = Priced(task, changed, Setup(recipe))
    split = priced.first_split()
    return None if split is None else priced.refine(priced.first(split))


def sending(task: Task, transfer: Transfer) -> Task:
    """Return the task with every message between nodes sent so."""
    return msgspec.structs.replace(task, recipe=replaced(task.recipe, transfer=transfer))


def _where_it_helps(task: Task, chain: Chain, given: Choice, most_s: float) -> Choice | None:
    """Return a choice that compresses on those links only where that shortens the step; ``None`` if
    the messages' own buffers do not fit.

    Args:
        given: it compresses on all.
        most_s: that it is to stay below.
    """
    most_s = min(most_s, given.step_s * (1 + ALIKE))
    crossed = Priced(task, chain, given.setup).price.boundaries
    transfers: tuple[Transfer, ...] = tuple(
        "none" if one.formats == FORMATS["none"] else AUTOMATIC for one in crossed
    )
    found = _with_transfers(task, chain, given, transfers)
    rates: dict[frozenset[int], float] = {}
    for pair, link in chain.links.items():
        ends = frozenset(pair)
        rates[ends] = min(rates.get(ends, inf), link.bytes_per_s)
    for ends in sorted(rates, key=lambda one: -rates[one]):
        fewer: tuple[Transfer, ...] = tuple(
            "none" if frozenset(one.ranks) == ends else transfer
            for one, transfer in zip(crossed, transfers, strict=True)
        )
        if fewer == transfers:
            continue
        tried = _with_transfers(task, chain, given, fewer)
        if tried is not None and tried.step_s <= most_s:
            found, transfers = tried, fewer
    return found


def _with_transfers(
    task: Task, chain: Chain, found: Choice, transfers: Transfer | tuple[Transfer, ...]
) -> Choice | None:
    """Return the choice with boundaries sent so, and all else as it is; ``None`` if that does not
    fit.
    """
    priced = Priced(task, chain, Setup(replaced(found.setup.recipe, transfer=transfers)))
    return None if priced.room.lack(found.split, found.counts) else priced.again(found)


Rooms = dict[tuple[object, ...], Room]
"""Of each setup, by its settings: one name for all transfers takes no part in what fits."""


def _search_settings(
    task: Task, chain: Chain, rooms: Rooms | None = None, *, most_s: float = inf
) -> Searched:
    """Find the best choice for a chain and the task's transfers.

    Args:
        rooms: of an earlier search for other transfers.
        most_s: what is slower is not of interest.
    """
    rooms = {} if rooms is None else rooms
    setups = [Priced(task, chain, one, rooms.get(one.settings)) for one in _setups(task, chain)]
    rooms |= {priced.setup.settings: priced.room for priced in setups}
    rough = sorted(
        ((priced.least(), priced) for priced in setups),
        key=lambda one: (one[0], one[1].setup.simplicity),
    )
    lack: Shortfall | None = None
    found: list[tuple[Choice, Priced]] = []
    best_s = most_s
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
    if not any(one.step_s <= best_s * (1 + NEAR) for one, _ in found):
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
