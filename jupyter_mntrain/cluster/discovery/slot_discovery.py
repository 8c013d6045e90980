"""Slot discovery: finds the agents of an allocation by the files that they write.

No multicast, and no address that anybody types: the allocation's directory is on a shared disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from jupyter_mntrain.cluster.discovery.discovery import Discovery, FoundAgent
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.slots import SlotFile, read_allocation, read_slots

LOOK_EVERY_S = tunables.seconds("discovery.slots_interval_s")
AGAIN_EVERY_S = tunables.seconds("discovery.slots_again_s")


class SlotDiscovery(Discovery):
    """Follows the directory of an allocation.

    Args:
        on_taken: called with the slots that were taken from it, by name, each with why.
    """

    def __init__(
        self, directory: Path, on_taken: Callable[[Mapping[str, Problem]], None] = lambda _: None
    ) -> None:
        self._directory = directory
        self._on_taken = on_taken
        self._offered: dict[str, tuple[SlotFile, float]] = {}
        self._numbers = count()
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_found: Callable[[FoundAgent], None]) -> None:
        self._task = asyncio.create_task(self._follow(on_found))

    async def close(self) -> None:
        await end_tasks([self._task] if self._task else [])

    async def _follow(self, on_found: Callable[[FoundAgent], None]) -> None:
        taken: Mapping[str, Problem] = {}
        while True:
            slots = await asyncio.to_thread(read_slots, self._directory)
            for found in self._news(slots, asyncio.get_running_loop().time()):
                on_found(found)
            told = (await asyncio.to_thread(read_allocation, self._directory)).gone
            if told != taken:
                taken = told
                self._on_taken(taken)
            await asyncio.sleep(LOOK_EVERY_S)

    def _news(self, slots: tuple[SlotFile, ...], now_s: float) -> Iterator[FoundAgent]:
        """Agents that were not offered yet; those that wait to join again and again."""
        for slot in slots:
            before, offered_s = self._offered.get(slot.slot, (None, 0.0))
            is_due = slot.state == "joining" and now_s - offered_s >= AGAIN_EVERY_S
            if slot.addresses and (slot != before or is_due):
                self._offered[slot.slot] = slot, now_s
                yield self._found(slot)

    def _found(self, slot: SlotFile) -> FoundAgent:
        is_joining = slot.state == "joining"
        return FoundAgent(
            addresses=slot.addresses,
            node_id=slot.node_id,
            name=slot.slot,
            joining=slot.joining,
            # Each offer of one that waits is tried once. A member's own answer says who it is.
            instance=f"{slot.slot} {next(self._numbers)}" if is_joining else "",
        )
