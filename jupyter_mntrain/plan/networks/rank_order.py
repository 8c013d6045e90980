"""Rank order: orders participants for the best links between neighbors, and picks the
head. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Final

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.measured_speeds import Pair, link_speeds

Order = tuple[int, ...]
"""Participants as indices."""

MOST_TRIED_ALL: Final = 6
"""Participants whose orders are all tried; 720 of them."""

TOLERANCE: Final = 0.1
"""Orders as good as the best one except for this share are equal: a repeated measurement is off by
less, and must not give a job another order."""


def measured_order(nodes: Sequence[NodeInfo]) -> Order:
    """Return the best order of nodes by their links; the given one unless all were measured."""
    as_given = tuple(range(len(nodes)))
    try:
        interfaces = choose_interfaces(nodes, [None] * len(nodes))
    except SpecError:  # a launch says so
        return as_given
    if not all(one.links or one.given for one in interfaces):
        return as_given
    speeds = link_speeds(nodes, interfaces)
    if not all(speed.is_measured for speed in speeds.values()):
        return as_given
    return rank_order(len(nodes), speeds)


def rank_order(count: int, speeds: Mapping[Pair, LinkSpeed]) -> Order:
    """Return the order whose slowest link between neighbors is fastest.

    Of equal ones, that with the least time per byte over all links between neighbors; then that
    whose first participant, the head, has the lowest latency to and from the others; then that
    nearest to the given one.

    Args:
        count: of participants; up to 6, all orders are tried. Of more, those in which each one is
            followed by the one with the fastest link.
        speeds: of every ordered pair.
    """
    if count < 2:
        return tuple(range(count))
    seconds = {
        pair: 1 / min(speeds[pair].bytes_per_s, speeds[pair[::-1]].bytes_per_s) for pair in speeds
    }
    given = tuple(range(count))
    tried = [*permutations(given)] if count <= MOST_TRIED_ALL else [*_chains(count, seconds)]
    rules: list[Callable[[Order], float]] = [
        lambda order: max(seconds[pair] for pair in pairwise(order)),
        lambda order: sum(seconds[pair] for pair in pairwise(order)),
        lambda order: _latency_s(order[0], speeds),
    ]
    for cost in rules:
        costs = {order: cost(order) for order in tried}
        limit = min(costs.values()) * (1 + TOLERANCE)
        tried = [order for order in tried if costs[order] <= limit]
    return min(tried)


def _chains(count: int, seconds: Mapping[Pair, float]) -> Iterable[Order]:
    """Yield the given order, and a nearest-neighbor chain from each participant."""
    yield tuple(range(count))
    for first in range(count):
        order, left = [first], set(range(count)) - {first}
        while left:
            nearest = min(sorted(left), key=lambda one: seconds[order[-1], one])
            order.append(nearest)
            left.remove(nearest)
        yield tuple(order)


def _latency_s(one: int, speeds: Mapping[Pair, LinkSpeed]) -> float:
    """Return the mean latency between a participant and the others, both ways."""
    own = [speed.latency_s for pair, speed in speeds.items() if one in pair]
    return sum(own) / len(own)
