"""Outcome: the record of a plan, from what a search found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import (
    LinkSpeed,
    OtherPlan,
    Plan,
    PlannedLink,
    PlannedRank,
)
from jupyter_mntrain.plan.choosing.devices import Chain
from jupyter_mntrain.plan.choosing.improvements import improvements
from jupyter_mntrain.plan.choosing.other_ways import other_ways
from jupyter_mntrain.plan.choosing.priced import Choice, Priced, Task
from jupyter_mntrain.plan.choosing.setups import Setup, replaced
from jupyter_mntrain.plan.choosing.update import Rings, crossings
from jupyter_mntrain.plan.prediction.step import name_bottleneck
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import shown_bytes

MOST_GUESSES = 6


def make_result(
    task: Task, chain: Chain, found: Choice, second: Choice | None, *, advises: bool
) -> Plan:
    """Make the plan of the best that was found.

    Args:
        second: the second best, if there is one.
        advises: whether to find out what would help.
    """
    recipe = found.setup.recipe
    passes, step_s = recipe.train.accumulation, found.step_s
    priced = Priced(task, chain, found.setup)
    price = priced.price
    computing = [passes * one for one in price.computing_s(found.split, found.counts)]
    needed = priced.room.needed(found.split, found.counts)
    layout = lay_out(recipe, len(chain.indices), price.layers)
    links = tuple(
        PlannedLink(
            sender=Rank(chain.places[pair[0]].ranks[0]),
            receiver=Rank(chain.places[pair[1]].ranks[0]),
            speed=speed,
            sent_bytes=messages * price.message_bytes,
            busy=messages * price.link(*pair).occupied / step_s,
        )
        for pair, speed in chain.links.items()
        if (messages := passes * found.setup.microbatches * price.crossings(pair))
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
                bubble=max(0.0, 1.0 - computing[number] / step_s),
                memory_bytes=needed[number],
                memory_limit_bytes=place.memory_bytes,
            )
            for number, place in enumerate(chain.places)
        ),
        links=links,
        in_flight=() if found.counts is None else found.counts.ahead,
        kept_back=found.counts.kept_back if found.counts and found.setup.keeps_back else (),
        update_s=found.end_s,
        bottleneck=name_bottleneck(
            {
                place.ranks[0]: one / step_s
                for place, one in zip(chain.places, computing, strict=True)
            },
            {(one.sender, one.receiver): one.busy for one in links},
        ),
        others=tuple(_others(task, chain, found, second)),
        improvements=improvements(task, chain, found) if advises else (),
        guesses=_guesses(task, chain, links),
    )


def _others(task: Task, chain: Chain, found: Choice, second: Choice | None) -> Iterator[OtherPlan]:
    if len(found.split) > 1 and "pipeline.split" in task.opened:
        yield _equal_split(task, chain, found)
    if second is not None:
        yield _other(task, chain, second, "second best")
    yield from other_ways(task, chain, found)


def _equal_split(task: Task, chain: Chain, found: Choice) -> OtherPlan:
    """The same with as many layers in each stage, as far as they can be divided."""
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
    """What was not measured."""
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
    """Those of what replicas and shards exchange."""
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
        what = "sums of gradients" if section.sums_gradients else "meetings of replicas"
        yield f"{what} within a node: 5 GB/s"


def _guessed_link(here: str, there: str, speed: LinkSpeed) -> str:
    return f"link from {here} to {there}: {speed.source or 'not measured'}"
