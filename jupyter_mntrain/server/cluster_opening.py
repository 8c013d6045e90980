"""Cluster opening: on the first request, so that an unused server costs nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model import tunables
from jupyter_mntrain.server.updates import PageUpdates

MOST_AT_ONCE = tunables.count("server.openings")

MOST_THREADS = tunables.count("server.threads")

T = TypeVar("T")


class Opening:
    """Makes the one hub, once.

    Args:
        connect: opens the cluster.
        version: of this package.
    """

    def __init__(self, connect: Callable[[], Cluster], version: str) -> None:
        self._connect = connect
        self._version = version
        self._opened: asyncio.Task[PageUpdates] | None = None
        self.pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="mntrain-server")
        self._turns = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, MOST_AT_ONCE))

    async def hub(self) -> PageUpdates:
        """The hub; made now, if there is none.

        Raises:
            SpecError: the cluster's name or addresses are wrong. Asked again, it is tried again.
        """
        if self._opened is None or (self._opened.done() and self._opened.exception()):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def work(self, kind: str, call: Callable[[], T]) -> T:
        """Run what waits for nodes in a thread, when it is this kind's turn."""
        async with self._turns[kind]:
            return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    async def close(self) -> None:
        """Stop watching. Jobs go on."""
        opened, self._opened = self._opened, None
        if opened is not None and not (opened.done() and opened.exception()):
            hub = await opened
            await hub.close()
            await asyncio.get_running_loop().run_in_executor(self.pool, hub.cluster.close)
        self.pool.shutdown(wait=False)

    async def _open(self) -> PageUpdates:
        cluster = await asyncio.get_running_loop().run_in_executor(self.pool, self._connect)
        return PageUpdates(cluster, self._version)
