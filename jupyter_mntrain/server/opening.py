"""The cluster is opened by the first who asks: a server nobody trains with costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.server.hub import Hub

MOST_THREADS = 8
"""Requests that wait for nodes at once; more wait for their turn, and the loop for none."""


class Opening:
    """Makes the one hub, once.

    Args:
        connect: opens the cluster.
        version: of this package.
    """

    def __init__(self, connect: Callable[[], Cluster], version: str) -> None:
        self._connect = connect
        self._version = version
        self._opened: asyncio.Task[Hub] | None = None
        self.pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="mntrain-server")

    async def hub(self) -> Hub:
        """The hub; made now, if there is none.

        Raises:
            SpecError: the cluster's name or addresses are wrong. Asked again, it is tried again.
        """
        if self._opened is None or (self._opened.done() and self._opened.exception()):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Stop watching. Jobs go on."""
        opened, self._opened = self._opened, None
        if opened is not None and not (opened.done() and opened.exception()):
            hub = await opened
            await hub.close()
            await asyncio.get_running_loop().run_in_executor(self.pool, hub.cluster.close)
        self.pool.shutdown(wait=False)

    async def _open(self) -> Hub:
        cluster = await asyncio.get_running_loop().run_in_executor(self.pool, self._connect)
        return Hub(cluster, self._version)
