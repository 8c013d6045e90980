"""Link capacities: looks up the known capacity of every ordered pair of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.plan.networks.outdated import known_links


class LinkCapacities:
    """Capacities from node to node, over the interfaces that they use for training.

    Args:
        given: the user's figure for every link of a job; it overrides everything else.
    """

    def __init__(self, given: Capacity | None = None) -> None:
        self._for_all = given
        self._given: dict[str, Capacity] = {}
        self._measured: dict[tuple[str, str], Capacity] = {}
        self._known: dict[tuple[str, str], Capacity | None] = {}
        """What :meth:`between` has said: of many ranks it is asked for every step of each."""

    def add(self, node: str, given: Capacity | None, links: Iterable[LinkMeasurement]) -> None:
        """Add what a node reports about its interface; outdated measurements are ignored."""
        self._known.clear()
        if given is not None:
            self._given[node] = given
        self._measured |= {
            (node, link.receiver): link.capacity for link in known_links(tuple(links))
        }

    def between(self, sender: str, receiver: str) -> Capacity | None:
        """Return the capacity given for the job, else for an end (the lower one), else measured."""
        pair = (sender, receiver)
        if pair not in self._known:
            ends = [self._given[node] for node in pair if node in self._given]
            given = self._for_all or min(ends, key=bytes_per_s, default=None)
            self._known[pair] = given or self._measured.get(pair)
        return self._known[pair]

    def of(self, pairs: Iterable[tuple[str, str]]) -> Capacity | None:
        """Return an interface's capacity to or from several nodes; ``None`` unless all are known.

        It is that of the fastest pair, as the others may be limited at their other end.
        """
        known = [self.between(*pair) for pair in pairs]
        found = [capacity for capacity in known if capacity is not None]
        return max(found, key=bytes_per_s, default=None) if len(found) == len(known) else None


def bytes_per_s(capacity: Capacity) -> float:
    return capacity.bytes_per_s
