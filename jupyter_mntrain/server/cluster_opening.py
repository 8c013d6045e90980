"""Opens the cluster on the first request, so that an unused server costs nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.server.benches import Benches
from jupyter_mntrain.server.long_works import LongWorks, WorkTurns
from jupyter_mntrain.server.updates import PageUpdates

MOST_AT_ONCE = 3
"""Maximum number of requests of one kind that wait for nodes at once; others queue."""

MOST_THREADS = 32
"""Maximum number of threads for all kinds; a thread is created only when it is needed."""

T = TypeVar("T")


class ClusterOpening:
    """Opens the cluster once, for all handlers.

    Args:
        name: of the cluster.
        connect: opens it.
    """

    def __init__(self, name: str, connect: Callable[[], Cluster]) -> None:
        self._connect = connect
        self._opened: asyncio.Task[PageUpdates] | None = None
        self.pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="mntrain-server")
        self._work_turns = WorkTurns()
        self.benches = Benches(self._work_turns, name)
        self.works = LongWorks(self._work_turns)
        self._turns = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, MOST_AT_ONCE))

    async def updates(self) -> PageUpdates:
        """The cluster's updates; the first call opens the cluster.

        Raises:
            SpecError: the cluster's name or addresses are wrong. The next call tries again.
        """
        if self._opened is None or (self._opened.done() and self._opened.exception()):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def work(self, kind: str, call: Callable[[], T]) -> T:
        """Run a blocking call in a thread; calls of one kind have a limit."""
        async with self._turns[kind]:
            return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    async def close(self) -> None:
        """Stop watching. Jobs keep running."""
        self._work_turns.close()
        opened, self._opened = self._opened, None
        if opened is not None and not (opened.done() and opened.exception()):
            updates = await opened
            await updates.close()
            await asyncio.get_running_loop().run_in_executor(self.pool, updates.clusters.close)
        self.pool.shutdown(wait=False)

    async def _open(self) -> PageUpdates:
        cluster = await asyncio.get_running_loop().run_in_executor(self.pool, self._connect)
        return PageUpdates(cluster)
