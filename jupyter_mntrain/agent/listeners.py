"""Listeners: send this agent's changes to its readers, and drop slow ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jupyter_mntrain.model.api import StreamMessage

BACKLOG = 256
"""Messages that a listener may be behind (minutes of heartbeats). Then it has to start over."""

FAREWELL_S = 1.0
"""Timeout for telling listeners that the agent ends."""


class Listeners:
    """Puts every message into a bounded queue for each listener."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[StreamMessage | None]] = set()
        self._all_gone = asyncio.Event()
        self._listening = 0

    @property
    def is_empty(self) -> bool:
        return not self._queues

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[StreamMessage | None]]:
        """Open a queue of messages from now on. ``None`` in it ends it: too slow, or no agent."""
        queue: asyncio.Queue[StreamMessage | None] = asyncio.Queue(BACKLOG + 1)
        self._queues.add(queue)
        self._listening += 1
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            self._listening -= 1
            if self._listening == 0:
                self._all_gone.set()

    def publish(self, message: StreamMessage) -> None:
        for queue in list(self._queues):
            if queue.qsize() >= BACKLOG:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    async def close(self) -> None:
        """Close every listener, after the messages that are already in its queue."""
        for queue in list(self._queues):
            self._queues.discard(queue)
            queue.put_nowait(None)
        if self._listening:
            self._all_gone.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), FAREWELL_S)
