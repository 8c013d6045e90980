"""Slot reaching: asks the source of an allocation again and again where its agents are."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError

log = logging.getLogger("mntrain.cluster")

LOOK_EVERY_S = tunables.seconds("discovery.slots_reach_interval_s")


class SlotAddresses(ABC):
    """Where the agents of one allocation are, as its source knows. Used on a driver's loop.

    Args:
        id: of the allocation.
    """

    def __init__(self, id: str) -> None:  # noqa: A002 - as everywhere
        self.id = id

    @abstractmethod
    async def ask(self) -> Mapping[str, str]:
        """``host:port`` of those that are reached now, by slot."""

    @abstractmethod
    async def close(self) -> None:
        """End what is held to reach them."""


class SlotReaching:
    """Follows one allocation: its agents move when its pods are replaced."""

    def __init__(self, slots: SlotAddresses) -> None:
        self._slots = slots
        self._tasks: list[asyncio.Task[None]] = []
        self.has_looked = False

    async def start(self, on_found: Callable[[str, str], None]) -> None:
        """Begin. ``on_found`` is called with each slot and its address, after every look."""
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
            await asyncio.sleep(LOOK_EVERY_S)
