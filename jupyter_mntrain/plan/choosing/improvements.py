"""Improvements: finds changes that would shorten a step, by planning with each in turn. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

import msgspec

from jupyter_mntrain.model.records.plan import DeviceSpeed, Improvement, LinkSpeed
from jupyter_mntrain.plan.choosing.alternatives import TRANSFERS, searched_transfers
from jupyter_mntrain.plan.choosing.devices import Chain, LinkBetween, make_chain
from jupyter_mntrain.plan.choosing.pricing import Choice, Priced, Setup, Task, replaced
from jupyter_mntrain.plan.choosing.search import search_again, sending
from jupyter_mntrain.plan.measured_speeds import PAYLOAD_SHARE
from jupyter_mntrain.recipe.memory import shown_bytes

LEAST_GAIN: Final = 1.01

MOST_LINKS: Final = 3

OFF: Final = (1 / 4, 1.0, 4.0)
"""Times that a guessed speed is higher than guessed: data sheets, nominal speeds of links, and
measurements alongside other programs were off by up to 4 where it was compared."""

NOMINAL_BITS_PER_S: Final = (100e6, 1e9, 2.5e9, 10e9, 25e9, 100e9, 400e9)
"""Speeds at which links are sold."""


def improvements(task: Task, chain: Chain, found: Choice) -> tuple[Improvement, ...]:
    """Return the changes that would shorten the step: fewer bytes between nodes first, then
    hardware; of either the most effective first.
    """
    changes = [*_faster_links(task, chain, found), *_faster_rank(task, chain)]
    tried = [(what, changed, search_again(changed, chain, found)) for what, changed in changes]
    tried += _without_recomputation(task, chain, found)
    return tuple(
        one
        for these in (list(_compressing(task, chain, found)), tried)
        for one in sorted(_helpful(task, chain, found, these), key=lambda one: -one.gain)
    )


_Tried = tuple[str, Task, Choice | None]
"""A change in words, the task with it, and what is chosen then."""


def _helpful(
    task: Task, chain: Chain, found: Choice, tried: Sequence[_Tried]
) -> Iterator[Improvement]:
    for what, changed, other in tried:
        if other is None or found.step_s <= LEAST_GAIN * other.step_s:
            continue
        gain = found.step_s / other.step_s
        gains = list(_gains((task, found), (changed, other), chain))
        low, high = (min(gain, *gains), max(gain, *gains)) if gains else (None, None)
        yield Improvement(what=what, gain=gain, low=low, high=high)


def _compressing(task: Task, chain: Chain, found: Choice) -> Iterator[_Tried]:
    """Yield the task with fewer bytes between nodes, as far as fewer shorten the step further."""
    least_s = found.step_s
    for transfer, best in searched_transfers(task, chain, found):
        if least_s > LEAST_GAIN * best.step_s:
            least_s = best.step_s
            what = f'{TRANSFERS[transfer]} (pipeline.transfer = "{transfer}")'
            yield what, sending(task, transfer), best


def _gains(
    before: tuple[Task, Choice], after: tuple[Task, Choice], chain: Chain
) -> Iterator[float]:
    """Yield the gain if all guessed devices, or all guessed links, were slower or faster than
    guessed; nothing if none was guessed.
    """
    task, _ = before
    nodes = {device.node: index for index, device in enumerate(task.devices)}
    has_guessed_devices = not all(one.speed.is_measured for one in task.devices)
    has_guessed_links = not all(
        task.links(*pair).is_measured for pair in permutations(nodes.values(), 2)
    )
    for times_devices in OFF if has_guessed_devices else (1.0,):
        for times_links in OFF if has_guessed_links else (1.0,):
            if (times_devices, times_links) != (1.0, 1.0):
                first_s, then_s = (
                    _step_s(_off(one, times_devices, times_links), choice, chain)
                    for one, choice in (before, after)
                )
                yield first_s / then_s


def _step_s(task: Task, choice: Choice, chain: Chain) -> float:
    made = make_chain(task.devices, task.links, task.recipe, chain.order)
    return Priced(task, made, choice.setup).first(choice.split).step_s


def _off(task: Task, times_devices: float, times_links: float) -> Task:
    """Return the task with its guessed speeds multiplied by these factors."""
    devices = [
        one
        if one.speed.is_measured
        else msgspec.structs.replace(one, speed=_times(one.speed, times_devices))
        for one in task.devices
    ]
    given: LinkBetween = task.links

    def links(sender: int, receiver: int) -> LinkSpeed:
        found = given(sender, receiver)
        if found.is_measured:
            return found
        return msgspec.structs.replace(found, bytes_per_s=found.bytes_per_s * times_links)

    return msgspec.structs.replace(_with_devices(task, tuple(devices)), links=links)


def _times(speed: DeviceSpeed, times: float) -> DeviceSpeed:
    def faster(rate: float | None) -> float | None:
        return None if rate is None else rate * times

    return msgspec.structs.replace(
        speed,
        flops_per_s=speed.flops_per_s * times,
        bytes_per_s=faster(speed.bytes_per_s),
        layer_bytes_per_s=faster(speed.layer_bytes_per_s),
        overhead_s=speed.overhead_s / times,
    )


def _faster_links(task: Task, chain: Chain, found: Choice) -> Iterator[tuple[str, Task]]:
    """Yield the task with each of the busiest links at the next speed on the market."""
    price = Priced(task, chain, found.setup).price
    busy: dict[tuple[str, str], float] = {}
    for pair in chain.links:
        nodes = _nodes(chain, pair)
        if (nodes[1], nodes[0]) in busy:
            nodes = nodes[1], nodes[0]
        busy[nodes] = max(busy.get(nodes, 0.0), price.busy_s(pair))
    for nodes in sorted(busy, key=lambda one: -busy[one])[:MOST_LINKS]:
        here = min(task.links(one, other).bytes_per_s for one, other in _between(task, nodes))
        faster = next(
            (one for one in NOMINAL_BITS_PER_S if one * PAYLOAD_SHARE / 8 > 1.2 * here), None
        )
        if faster is not None:
            what = f"a {_shown_rate(faster)} link from {nodes[0]} to {nodes[1]}"
            yield what, _with_links(task, {nodes}, faster)


def _faster_rank(task: Task, chain: Chain) -> Iterator[tuple[str, Task]]:
    """Yield the task with the slowest device made as fast as the fastest."""
    speeds = [place.speed.flops_per_s for place in chain.places]
    slow, fast = speeds.index(min(speeds)), speeds.index(max(speeds))
    if speeds[fast] <= LEAST_GAIN * speeds[slow]:
        return
    devices = list(task.devices)
    for rank in chain.places[slow].ranks:
        index = chain.indices[rank]
        devices[index] = msgspec.structs.replace(devices[index], speed=chain.places[fast].speed)
    yield f"rank {slow} as fast as rank {fast}", _with_devices(task, tuple(devices))


def _without_recomputation(task: Task, chain: Chain, found: Choice) -> list[_Tried]:
    if found.setup.checkpointing == "none":
        return []
    roomy = tuple(msgspec.structs.replace(one, memory_bytes=None) for one in task.devices)
    changed = msgspec.structs.replace(
        _with_devices(task, roomy),
        recipe=replaced(task.recipe, checkpointing="none"),
        opened=task.opened - {"memory.checkpointing"},
    )
    plain = Setup(replaced(found.setup.recipe, checkpointing="none"))
    other = search_again(changed, chain, found._replace(setup=plain))
    if other is None:
        return []
    needed = Priced(changed, chain, other.setup).room.needed(other.split, other.counts)
    most = max(range(len(needed)), key=needed.__getitem__)
    what = f"no recomputation, with {shown_bytes(round(needed[most]))} of memory on rank {most}"
    return [(what, changed, other)]


def _with_devices(task: Task, devices: tuple[object, ...]) -> Task:
    return msgspec.structs.replace(task, devices=devices)


def _with_links(task: Task, changed: set[tuple[str, str]], bits_per_s: float) -> Task:
    names = [device.node for device in task.devices]
    given: LinkBetween = task.links

    def links(sender: int, receiver: int) -> LinkSpeed:
        pair = names[sender], names[receiver]
        found = given(sender, receiver)
        if pair in changed or (pair[1], pair[0]) in changed:
            rate = bits_per_s * PAYLOAD_SHARE / 8
            return msgspec.structs.replace(found, bytes_per_s=rate, is_measured=True)
        return found

    return msgspec.structs.replace(task, links=links)


def _nodes(chain: Chain, pair: tuple[int, int]) -> tuple[str, str]:
    here, there = (chain.places[place].devices[0].node for place in pair)
    return here, there


def _between(task: Task, nodes: tuple[str, str]) -> Iterator[tuple[int, int]]:
    here, there = (
        next(index for index, one in enumerate(task.devices) if one.node == node) for node in nodes
    )
    yield here, there
    yield there, here


def _shown_rate(bits_per_s: float) -> str:
    if bits_per_s < 1e9:
        return f"{bits_per_s / 1e6:g} Mbit/s"
    return f"{bits_per_s / 1e9:g} Gbit/s"
