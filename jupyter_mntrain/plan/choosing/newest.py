"""Newest: what was asked for lately is not computed again.

A panel, its launch and the launcher plan the same job.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Final, Generic, TypeVar

import msgspec

from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.choosing.priced import Task

T = TypeVar("T")

KEPT: Final = 64
MOST_KEPT_RANKS: Final = 32
"""Between more, links alone would take longer to compare than many searches."""


class Newest(Generic[T]):
    """Results for tasks."""

    def __init__(self) -> None:
        self._kept: dict[bytes, T] = {}

    def get(self, task: Task, more: object, make: Callable[[], T]) -> T:
        """The result for a task and what else decides it; an error is not kept."""
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
