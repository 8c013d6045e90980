"""Slot discovery: finds the agents of an allocation by the files that they write.

No multicast, and no address that anybody types: the allocation's directory is on a shared disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from jupyter_mntrain.cluster.discovery.discovery import Discovery, FoundAgent
from jupyter_mntrain.cluster.discovery.slot_reader import speak_for_the_gone
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.slots import (
    AllocationFile,
    SlotFile,
    read_allocation,
    read_slots,
)

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
        self._tasks: list[asyncio.Task[None]] = []
        self._gone: frozenset[str] | None = None
        """Slots whose agents are gone; ``None`` before the first look."""
        self._spoken: set[str] = set()

    async def start(self, on_found: Callable[[FoundAgent], None]) -> None:
        self._tasks.append(asyncio.create_task(self._follow(on_found)))

    async def close(self) -> None:
        await end_tasks(self._tasks)

    @property
    def has_looked(self) -> bool:
        """Whether every agent that was there or gone at the first look has been found."""
        return self._gone is not None and self._gone <= self._spoken

    async def _follow(self, on_found: Callable[[FoundAgent], None]) -> None:
        taken: Mapping[str, Problem] = {}
        while True:
            slots = await asyncio.to_thread(read_slots, self._directory)
            for found in self._news(slots, asyncio.get_running_loop().time()):
                on_found(found)
            told = await asyncio.to_thread(read_allocation, self._directory)
            if told.gone != taken:
                taken = told.gone
                self._on_taken(taken)
            self._look_for_the_gone(slots, told, on_found)
            await asyncio.sleep(LOOK_EVERY_S)

    def _look_for_the_gone(
        self,
        slots: tuple[SlotFile, ...],
        told: AllocationFile,
        on_found: Callable[[FoundAgent], None],
    ) -> None:
        is_first, were_gone = self._gone is None, bool(self._gone)
        gone = {one.slot for one in slots if one.state == "gone" or told.why_gone(one.slot)}
        if is_first or not were_gone:
            self._gone = frozenset(gone)

        def found(agent: FoundAgent) -> None:
            on_found(agent)
            self._spoken.add(agent.name)

        if gone and not were_gone:
            work = speak_for_the_gone(self._directory, found)
            self._tasks.append(asyncio.create_task(work))

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
