"""Panel worker: one thread for all slow work, so that no click waits.

Which thread a widget's callback runs in differs between ipykernel 7.3 and 7.4, and may be that of
a cell which runs for hours. So callbacks only put a task here.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable

Task = Callable[[], None]


class Worker:
    """Runs tasks in turn, and ``settle`` whenever none is left.

    Args:
        settle: shows what the tasks have changed.
        failed: told of whatever a task or ``settle`` raised.
    """

    def __init__(self, settle: Task, failed: Callable[[Exception], None]) -> None:
        self._settle = settle
        self._failed = failed
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._is_awake = threading.Event()
        # An empty context: what it shows belongs to no cell that ran long ago.
        run = contextvars.Context().run
        self._thread = threading.Thread(
            target=run, args=(self._work,), name="mntrain-panel", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def put(self, task: Task) -> None:
        """Have it done; returns at once."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Have ``settle`` run: however often this is called before, once is enough."""
        if not self._is_awake.is_set():
            self._is_awake.set()
            self._tasks.put(self._is_awake.clear)

    def close(self) -> None:
        """Do nothing more after the task at hand."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(task)
            if self._tasks.empty():
                self._do(self._settle)

    def _do(self, task: Task) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the panel says it and goes on
            self._failed(error)
