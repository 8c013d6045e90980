"""Split: divides layers among ranks of unlike speed so that the slowest is as fast as it can be."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class RankCost(NamedTuple):
    """What a rank's share costs it, in seconds per microbatch.

    Args:
        layer: each decoder layer.
        fixed: what it computes besides layers, such as the head.
        most: layers that fit into its memory.
    """

    layer: float
    fixed: float = 0.0
    most: int = 1 << 30

    def of(self, layers: int) -> float:
        return self.fixed + layers * self.layer


def best_split(layers: int, costs: Sequence[RankCost]) -> tuple[int, ...] | None:
    """Return how many layers each rank gets, at least one each; ``None`` if they fit nowhere.

    Of the splits whose slowest rank is fastest, the one that takes all ranks together the least
    time. The duration of the slowest rank is found by bisection among all that are possible; then
    layers go to the ranks that compute them fastest, as long as none takes longer.
    """
    if any(cost.most < 1 for cost in costs) or layers < len(costs):
        return None
    if sum(min(cost.most, layers) for cost in costs) < layers:
        return None
    durations = sorted(
        {cost.of(own) for cost in costs for own in range(1, min(cost.most, layers) + 1)}
    )
    slowest = durations[
        bisect_left(durations, x=True, key=lambda limit: _taken(layers, costs, limit) >= layers)
    ]
    split = [1] * len(costs)
    waiting = [(cost.layer, cost.of(2), rank) for rank, cost in enumerate(costs)]
    heapq.heapify(waiting)
    left = layers - len(costs)
    while left:
        layer, duration, rank = heapq.heappop(waiting)
        if duration <= slowest and split[rank] < costs[rank].most:
            split[rank] += 1
            left -= 1
            heapq.heappush(waiting, (layer, costs[rank].of(split[rank] + 1), rank))
    return tuple(split)


def _taken(layers: int, costs: Sequence[RankCost], limit: float) -> int:
    """Layers that all ranks take within a duration; too few if one cannot take any."""
    total = 0
    for cost in costs:
        if cost.of(1) > limit:
            return 0
        most = min(cost.most, layers)
        own = most if cost.layer <= 0 else min(most, int((limit - cost.fixed) / cost.layer) + 1)
        total += own if cost.of(own) <= limit else own - 1
    return total
