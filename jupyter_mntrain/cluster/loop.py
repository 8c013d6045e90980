"""An event loop in a thread of its own: how plain code uses the async core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")

INTERRUPT_S = 10.0
"""After Ctrl-C, how long cancelled work may take to undo what it had begun."""

CLOSE_S = 5.0
"""For tasks to end when the thread is closed; it is a daemon and never holds up the exit."""


class ClosedError(RuntimeError):
    """Asked of a thread that is closed."""


class LoopThread:
    """Runs coroutines for other threads, also for one that runs an event loop itself.

    Args:
        name: of the thread, for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._is_running.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, waited for. Ctrl-C cancels it and waits until it has ended.

        Raises:
            ClosedError: the thread is closed, or was while this was waited for.
            RuntimeError: called from this very thread, which would wait for itself.
        """
        if self._loop is None:
            work.close()
            raise ClosedError("closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("called from its own loop")
        has_ended = threading.Event()

        async def tracked() -> T:
            try:
                return await work
            finally:
                has_ended.set()

        future = asyncio.run_coroutine_threadsafe(tracked(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            has_ended.wait(INTERRUPT_S)
            raise
        except CancelledError:
            raise ClosedError("closed while this was waited for") from None

    def close(self) -> None:
        """End every task and the thread. Again, it does nothing."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_running.set()
        await self._stop.wait()
