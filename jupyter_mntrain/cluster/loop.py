"""Event loop in a thread: runs the async core for synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

INTERRUPT_S = 10.0
"""Time that canceled work may take, after Ctrl-C, to undo what it has begun."""

UNBEGUN_S = 0.2
"""Time for work handed over just before Ctrl-C to notice that it is canceled."""

CANCEL_AGAIN_S = 0.5
"""A timeout that fires at the moment of a cancellation swallows it: tasks are canceled again after
this."""

CLOSE_S = 5.0
"""Time for tasks to end when a cluster is closed. It never delays the exit: the thread is a
daemon."""


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all have ended; their errors are dropped."""
    open_tasks = {task for task in tasks if not task.done()}
    while open_tasks:
        for task in open_tasks:
            task.cancel()
        ended, open_tasks = await asyncio.wait(open_tasks, timeout=CANCEL_AGAIN_S)
        for task in ended:
            # Retrieve the error, or asyncio reports it as never retrieved.
            if not task.cancelled():
                task.exception()


class ClosedError(RuntimeError):
    """Raised when a closed thread is asked to run something."""


class LoopThread:
    """Runs coroutines for other threads, even for one that runs an event loop itself.

    Args:
        name: of the thread, for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handing = threading.Lock()
        self._is_running = threading.Event()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(),), name=name, daemon=True
        )
        self._thread.start()
        self._is_running.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` and wait for its result. Ctrl-C cancels it and waits until it has ended.

        Raises:
            ClosedError: the thread is closed, or was closed meanwhile.
            RuntimeError: called from this thread itself: it would wait forever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("called from its own loop")
        call = _Call(work)
        try:
            # Ctrl-C may come before there is a future to wait for: the call keeps its own task.
            with self._handing:  # what is handed over before the end is canceled by it
                loop = self._loop
                if loop is None:
                    work.close()
                    raise ClosedError("closed")
                future = asyncio.run_coroutine_threadsafe(call.run(), loop)
            return future.result()
        except KeyboardInterrupt:
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(call.cancel)
            call.has_ended.wait(INTERRUPT_S)
            raise
        except CancelledError:
            work.close()  # it may not have begun
            raise ClosedError("closed during this call") from None

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield what an async generator yields in the thread, and close it at the end."""

        async def following() -> T | None:
            return await anext(items, None)

        try:
            while (item := self.run(following())) is not None:
                yield item
        finally:
            with suppress(ClosedError):  # the thread has closed it
                self.run(items.aclose())

    def close(self) -> None:
        """End every task and the thread. May be called twice."""
        with self._handing:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(self._stop.set)
        if loop is not None:
            self._thread.join(CLOSE_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_running.set()
        await self._stop.wait()


class _Call(Generic[T]):
    """Work handed to the loop; can be canceled before it has started."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.has_ended = threading.Event()
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_canceled = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._is_canceled:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self.has_ended.set()

    def cancel(self) -> None:
        """Cancel the work. Runs in the loop's thread."""
        self._is_canceled = True
        if self._task is not None:
            self._task.cancel()
        else:
            # The work was only just handed over, or never: nothing else would mark it as ended.
            asyncio.get_running_loop().call_later(UNBEGUN_S, self.has_ended.set)
