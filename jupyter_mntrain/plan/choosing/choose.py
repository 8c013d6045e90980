"""Planner: plans a job from its recipe, devices and links. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import (
    Compressed,
    LinkSpeed,
    OtherPlan,
    Plan,
    PlannedLink,
    PlannedRank,
)
from jupyter_mntrain.plan.choosing.alternatives import other_transfers, other_ways, with_shards
from jupyter_mntrain.plan.choosing.devices import (
    Chain,
    Device,
    LinkBetween,
    make_chain,
    orders,
    participants,
)
from jupyter_mntrain.plan.choosing.improvements import improvements
from jupyter_mntrain.plan.choosing.pricing import (
    Choice,
    Priced,
    Rings,
    Setup,
    Shortfall,
    Task,
    crossings,
    open_settings,
    replaced,
)
from jupyter_mntrain.plan.choosing.search import AUTOMATIC, Newest, Searched, fits, search
from jupyter_mntrain.plan.prediction.step import Boundary, name_bottleneck
from jupyter_mntrain.recipe.combinations import check_memory
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import Config, shown_bytes
from jupyter_mntrain.recipe.sections import OptimizerKind, Recipe
from jupyter_mntrain.recipe.transfers import FORMATS

# Refusal: what is said of a job that fits nowhere, with the smallest change that fits. Pure.


MOST_ADDED: Final = 4
"""Most ranks that are tried in addition to the existing ones."""

_OPTIMIZERS: Final[tuple[OptimizerKind, ...]] = ("adamw-8bit", "adamw-4bit", "adafactor")


class _Change(NamedTuple):
    what: str
    task: Task


def refusal(task: Task, chain: Chain, lack: Shortfall | None) -> RecipeError:
    """Return the error of a job that does not fit: which rank, what it needs and has, and the
    smallest change that would fit.
    """
    if lack is None:
        cause = "no split of the layers among these ranks is possible"
        return RecipeError(cause, fix="use fewer ranks, or a model with more layers")
    rank, device = chain.places[lack.place].smallest
    needed, limit = (shown_bytes(round(size)) for size in (lack.needed_bytes, lack.limit_bytes))
    cause = f"rank {rank} needs {needed} of memory and has {limit} ({device.name})"
    for change in _changes(task, chain):
        with suppress(RecipeError):
            tried = change.task
            order = range(len(participants(tried.devices)))
            changed = make_chain(tried.devices, tried.links, tried.recipe, order)
            if fits(change.task, changed):
                return RecipeError(cause, fix=change.what, node=device.node)
    fix = "use a smaller model, shorter sequences, or more nodes"
    return RecipeError(cause, fix=fix, node=device.node)


def _changes(task: Task, chain: Chain) -> Iterator[_Change]:
    """Yield changes that may make a job fit, from the cheapest to the most drastic."""
    recipe, opened = task.recipe, task.opened
    for name, what in (
        ("pipeline.split", "leave pipeline.split out: another split fits"),
        ("pipeline.in_flight", "leave pipeline.in_flight out: fewer in flight fit"),
        ("memory.checkpointing", 'use memory.checkpointing = "full"'),
        ("pipeline.microbatches", "leave pipeline.microbatches out: smaller microbatches fit"),
        ("pipeline.schedule", "leave pipeline.schedule out: another schedule fits"),
    ):
        if name not in opened:
            yield _Change(what, _opening(task, {name}))
    everything = _opening(task, {"pipeline.split", "pipeline.microbatches", "memory.checkpointing"})
    if everything.opened != opened:
        what = "leave pipeline.split, pipeline.microbatches and memory.checkpointing out"
        yield _Change(what, everything)
    # Sharded replicas learn the same; shards in place of a pipeline send much more.
    has_replicas = recipe.data_parallel.replicas > 1
    if has_replicas:
        yield from _sharded(everything, "replicas")
    if recipe.precision == "float32-master":
        yield _Change(
            'use optimizer.precision = "stochastic-rounding"',
            _with_optimizer(everything, recipe, precision="stochastic-rounding"),
        )
    if recipe.optimizer.kind == "adamw":
        for kind in _OPTIMIZERS:
            yield _Change(
                f'use optimizer.kind = "{kind}"', _with_optimizer(everything, recipe, kind=kind)
            )
    if not has_replicas:
        yield from _sharded(everything, "a pipeline")
    yield from _more_ranks(everything, chain)


def _sharded(task: Task, replaced: str) -> Iterator[_Change]:
    if len(task.devices) < 2:
        return
    for tried in with_shards(task):
        section = tried.recipe.data_parallel
        what = f"use data_parallel.shards = {section.shards} in place of {replaced}"
        if section.reshard_after_forward:
            what += ", with reshard_after_forward = true"
        with suppress(RecipeError):
            check_memory(tried.recipe)
            yield _Change(what, tried)


_ANY_LINK = LinkSpeed(bytes_per_s=1e8, source="assumed")
"""Link to an imaginary node: its speed does not decide whether a job fits."""


def _more_ranks(task: Task, chain: Chain) -> Iterator[_Change]:
    """Yield changes that add ranks on new nodes, each like the device with the most memory."""
    width = task.recipe.data_parallel.width
    largest = max(task.devices, key=lambda one: one.memory_bytes or 0.0)
    known = len(task.devices)

    def links(sender: int, receiver: int) -> LinkSpeed:
        if max(sender, receiver) < known:
            return task.links(sender, receiver)
        return next(iter(chain.links.values()), _ANY_LINK)

    for more in range(1, MOST_ADDED + 1):
        added = tuple(
            msgspec.structs.replace(largest, node=f"{largest.node} {number + 1}")
            for number in range(more)
            for _ in range(width)
        )
        count = more * width
        what = f"add {count} more rank{'s' * (count > 1)} like that of {largest.node}"
        yield _Change(
            what, msgspec.structs.replace(task, devices=(*task.devices, *added), links=links)
        )


def _opening(task: Task, names: set[str]) -> Task:
    pipeline = task.recipe.pipeline
    if "pipeline.in_flight" in names:
        pipeline = msgspec.structs.replace(pipeline, in_flight="auto")
    recipe = msgspec.structs.replace(task.recipe, pipeline=pipeline)
    return msgspec.structs.replace(task, recipe=recipe, opened=task.opened | names)


def _with_optimizer(task: Task, recipe: Recipe, **changes: str) -> Task:
    section = msgspec.structs.replace(recipe.optimizer, **changes)
    return msgspec.structs.replace(
        task, recipe=msgspec.structs.replace(task.recipe, optimizer=section)
    )


# Outcome: the record of a plan, from what a search found. Pure.


MOST_GUESSES = 6


def make_result(
    task: Task, chain: Chain, searched: Searched, found: Choice, *, advises: bool
) -> Plan:
    """Make the plan from the best choice that was found.

    Args:
        found: the best of ``searched``.
        advises: whether to find out what would help.
    """
    second, plain = searched.second, searched.plain
    recipe = found.setup.recipe
    passes, step_s = recipe.train.accumulation, found.step_s
    priced = Priced(task, chain, found.setup)
    price = priced.price
    microbatches = passes * found.setup.microbatches
    computing = [passes * one for one in price.computing_s(found.split, found.counts)]
    coding = [passes * one for one in price.coding_s()]
    needed = priced.room.needed(found.split, found.counts)
    layout = lay_out(recipe, len(chain.indices), price.layers)
    links = tuple(
        PlannedLink(
            sender=Rank(chain.places[pair[0]].ranks[0]),
            receiver=Rank(chain.places[pair[1]].ranks[0]),
            speed=speed,
            sent_bytes=microbatches * price.sent_bytes(pair),
            busy=microbatches * price.busy_s(pair) / step_s,
        )
        for pair, speed in chain.links.items()
        if price.sent_bytes(pair)
    )
    return Plan(
        step_s=step_s,
        tokens_per_s=recipe.tokens_per_step / step_s,
        chosen=found.chosen(task.opened),
        order=chain.order,
        ranks=tuple(
            PlannedRank(
                node=place.devices[0].node,
                device=place.devices[0].name,
                speed=place.speed,
                layers=tuple(len(layout.stages[one]) for one in layout.stages_of(number)),
                computing_s=computing[number],
                coding_s=coding[number],
                bubble=max(0.0, 1.0 - computing[number] / step_s),
                memory_bytes=needed[number],
                memory_limit_bytes=place.memory_bytes,
            )
            for number, place in enumerate(chain.places)
        ),
        links=links,
        compressed=tuple(_compressed(chain, price.boundaries)),
        compressed_gain=None if plain is None else plain.step_s / step_s,
        in_flight=() if found.counts is None else found.counts.ahead,
        deferred=found.counts.deferred if found.counts and found.setup.defers else (),
        update_s=found.end_s,
        bottleneck=name_bottleneck(
            {
                place.ranks[0]: one / step_s
                for place, one in zip(chain.places, computing, strict=True)
            },
            {(one.sender, one.receiver): one.busy for one in links},
        ),
        others=(
            *_others(task, chain, found, second),
            *(other_transfers(task, chain, found) if advises else ()),
        ),
        improvements=improvements(task, chain, found) if advises else (),
        guesses=_guesses(task, chain, links),
    )


def _compressed(chain: Chain, crossed: Sequence[Boundary]) -> Iterator[Compressed]:
    """Yield what is compressed between which nodes, each once."""
    names = {formats: transfer for transfer, formats in FORMATS.items()}
    nodes = [place.devices[0].node for place in chain.places]
    found = {
        (names[one.formats], tuple(nodes[end] for end in sorted(one.ranks))): None
        for one in crossed
        if one.formats != FORMATS["none"]
    }
    for transfer, (here, there) in found:
        yield Compressed(transfer, (here, there))


def _others(task: Task, chain: Chain, found: Choice, second: Choice | None) -> Iterator[OtherPlan]:
    if len(found.split) > 1 and "pipeline.split" in task.opened:
        yield _equal_split(task, chain, found)
    if second is not None:
        yield _other(task, chain, second, "second best")
    yield from other_ways(task, chain, found)


def _equal_split(task: Task, chain: Chain, found: Choice) -> OtherPlan:
    """Predict the same choice with layers split evenly among the stages."""
    setup = Setup(replaced(found.setup.recipe, split="even"))
    layout = lay_out(setup.recipe, len(chain.indices), task.config["num_hidden_layers"])
    split = tuple(map(len, layout.stages))
    if split == found.split:
        return _other(task, chain, found, "equal split")
    priced = Priced(task, chain, setup)
    even = priced.with_split(split)
    if even is not None:
        return _other(task, chain, even, "equal split")
    lack = priced.lack
    obstacle = "does not fit into memory"
    if lack is not None:
        needed, limit = (shown_bytes(round(one)) for one in (lack.needed_bytes, lack.limit_bytes))
        rank, _ = chain.places[lack.place].smallest
        obstacle = f"rank {rank} needs {needed} of memory and has {limit}"
    return OtherPlan(name="equal split", obstacle=obstacle)


def _other(task: Task, chain: Chain, found: Choice, name: str) -> OtherPlan:
    needed = tuple(Priced(task, chain, found.setup).room.needed(found.split, found.counts))
    return OtherPlan(
        name=name, chosen=found.chosen(task.opened), step_s=found.step_s, memory_bytes=needed
    )


def _guesses(task: Task, chain: Chain, links: Iterable[PlannedLink]) -> tuple[str, ...]:
    """Return the figures that the plan had to guess, as they were not measured."""
    found: dict[str, None] = {}
    for device in task.devices:
        if not device.speed.is_measured:
            source = device.speed.source or "not measured"
            found[f"speed of {device.node}'s {device.name}: {source}"] = None
    nodes = {rank: device.node for place in chain.places for rank, device in place.ranked}
    for link in links:
        if not link.speed.is_measured:
            found[_guessed_link(nodes[link.sender], nodes[link.receiver], link.speed)] = None
    found |= dict.fromkeys(_guesses_of_rings(task, chain))
    said = list(found)
    more = len(said) - MOST_GUESSES
    return (*said[:MOST_GUESSES], *([f"{more} more"] if more > 0 else []))


def _guesses_of_rings(task: Task, chain: Chain) -> Iterator[str]:
    """Yield the guessed links over which replicas and shards exchange data."""
    section, rings = task.recipe.data_parallel, Rings.of(task.recipe, chain)
    used = [one for one in (*rings.every, *rings.shards) if len(one) > 1]
    is_within = False
    for ring in used:
        crossing = crossings(task.devices, ring)
        is_within |= len(crossing) < len(ring)
        for one, other in crossing:
            speed = task.links(one, other)
            if not speed.is_measured:
                yield _guessed_link(task.devices[one].node, task.devices[other].node, speed)
    if is_within:
        what = "sums of gradients" if section.sums_gradients else "syncs of replicas"
        yield f"{what} within a node: 5 GB/s"


def _guessed_link(here: str, there: str, speed: LinkSpeed) -> str:
    return f"link from {here} to {there}: {speed.source or 'not measured'}"


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
        recipe: with what depends on the devices resolved, such as the dtype.
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
            return make_result(task, chain, searched, searched.best, advises=advises)
        raise refusal(task, chain, searched.lack)

    return _newest.get(task, (order_is_free, advises), make)


_newest: Newest[Plan] = Newest()


def _searched(task: Task, *, order_is_free: bool) -> tuple[Chain, Searched]:
    """Return the best choice for the given order or, if the order is free, for all that
    are tried.
    """
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
    """Return the orders in which the choice for the given order would be fastest."""
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
        recipe = searched.best.setup.recipe
        if task.recipe.pipeline.transfer == "auto":
            # Of its list each is for a boundary of the given order.
            recipe = replaced(recipe, transfer="none" if searched.plain is None else AUTOMATIC)
        if "pipeline.split" in task.opened:
            recipe = replaced(recipe, split="even")
        setup = Setup(recipe)
        priced = Priced(task, chain, setup)
        split = priced.first_split()
        if split is not None:
            tried.append((priced.first(split).step_s, len(tried), chain))
    if searched.best is None:
        return [chain for _, _, chain in tried if fits(task, chain)][:most]
    return [chain for _, _, chain in sorted(tried, key=lambda one: one[:2])[:most]]


def _look(chain: Chain) -> tuple[object, ...]:
    """Return a key of what decides a chain's step time: equal for orders that differ in
    names only.
    """
    places = tuple(
        (*msgspec.structs.astuple(place.speed), place.memory_bytes, place.is_gpu)
        for place in chain.places
    )
    links = tuple(
        (pair, link.bytes_per_s, link.latency_s) for pair, link in sorted(chain.links.items())
    )
    return places, links
