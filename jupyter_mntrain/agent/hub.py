"""Who listens to this agent's changes. A listener that does not keep up is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_mntrain.model.api import StreamMessage

BACKLOG = 256
"""Messages a listener may be behind, minutes of beats; then it has to ask anew."""


class Hub:
    """Hands every message to every listener's own bounded queue."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[StreamMessage | None]] = set()

    @property
    def has_listeners(self) -> bool:
        return bool(self._queues)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[StreamMessage | None]]:
        """A queue of messages from now on; ``None`` means: too slow, or the agent ends."""
        queue: asyncio.Queue[StreamMessage | None] = asyncio.Queue(BACKLOG + 1)
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def publish(self, message: StreamMessage) -> None:
        for queue in list(self._queues):
            if queue.qsize() >= BACKLOG:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    def close(self) -> None:
        for queue in list(self._queues):
            self._queues.discard(queue)
            queue.put_nowait(None)
