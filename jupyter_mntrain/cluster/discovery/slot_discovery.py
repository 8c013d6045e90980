"""Discovery in a scheduler's allocation: finds agents by the files that they write."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.discovery.discovery import Discovery, FoundAgent
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.slots import (
    AllocationFile,
    SlotFile,
    SlotSpoken,
    read_allocation,
    read_slots,
)

# Slot reader: a program of this machine that speaks for agents of an allocation that are gone.
#
# An agent's own code reads its directory, so a driver reads records, journals and logs as ever.


log = logging.getLogger("mntrain.cluster")

_decoder = msgspec.json.Decoder(SlotSpoken)


async def speak_for_the_gone(directory: Path, on_found: Callable[[FoundAgent], None]) -> None:
    """Run a program that serves the records of ended agents, until canceled. It never outlives
    this process.

    Args:
        on_found: called with each agent that it speaks for.
    """
    command = (sys.executable, "-P", "-m", "jupyter_mntrain.agent", "read", str(directory))
    # Its own session: Ctrl-C is for the command that reads.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        async for line in process.stdout:
            with suppress(msgspec.MsgspecError):
                told = _decoder.decode(line)
                on_found(
                    FoundAgent(addresses=(told.address,), node_id=told.node_id, name=told.slot)
                )
        log.warning("the records in %s cannot be read", directory)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    """Terminate the process and wait until it has ended; if the wait is canceled, kill it."""
    ending = asyncio.ensure_future(process.wait())
    end = process.terminate
    while not ending.done():
        with suppress(ProcessLookupError):
            end()
        end = process.kill
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ending)


# Slot reaching: asks the source of an allocation again and again where its agents are.


ASK_EVERY_S = 2.0
"""Interval of asking a scheduler where agents are that tell it in no file: pods are replaced."""


class SlotAddresses(ABC):
    """Addresses of one allocation's agents, as its scheduler knows them. Used on a driver's loop.

    Args:
        id: of the allocation.
    """

    def __init__(self, id: str) -> None:  # noqa: A002 - as everywhere
        self.id = id

    @abstractmethod
    async def ask(self) -> Mapping[str, str]:
        """Return the ``host:port`` of each agent that can be reached now, by slot."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections that are held open to reach them."""


class SlotReaching:
    """Follows the agents of one allocation, whose addresses change when pods are replaced."""

    def __init__(self, slots: SlotAddresses) -> None:
        self._slots = slots
        self._tasks: list[asyncio.Task[None]] = []
        self.has_looked = False

    async def start(self, on_found: Callable[[str, str], None]) -> None:
        """Start. ``on_found`` is called with each slot and its address after every look."""
        self._tasks.append(asyncio.create_task(self._follow(on_found)))

    async def close(self) -> None:
        await end_tasks(self._tasks)
        await self._slots.close()

    async def _follow(self, on_found: Callable[[str, str], None]) -> None:
        told = ""
        while True:
            try:
                for slot, address in (await self._slots.ask()).items():
                    on_found(slot, address)
            except MntrainError as error:
                if str(error) != told:
                    log.warning("the agents of %s are not reached: %s", self._slots.id, error)
                told = str(error)
            self.has_looked = True
            await asyncio.sleep(ASK_EVERY_S)


# Slot discovery: finds the agents of an allocation by the files that they write.
#
# No multicast, and no address that anybody types: the allocation's directory is on a shared disk.


LOOK_EVERY_S = 1.0
"""Interval of reading the files of an allocation's agents. On a shared disk, so not too often."""
AGAIN_EVERY_S = 5.0
"""Interval of admitting an agent of it again that still waits to join."""


class SlotDiscovery(Discovery):
    """Finds the agents of an allocation by the files in its directory.

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
        """Yield agents that are new, and repeatedly those that wait to join."""
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
