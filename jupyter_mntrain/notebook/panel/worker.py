"""Panel worker: one thread for all slow work, so that no click waits.

Which thread runs a widget's callback differs between ipykernel 7.3 and 7.4; it may be busy with a
cell for hours. So callbacks only enqueue a task.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jupyter_mntrain.notebook.background import background_thread

Task = Callable[[], None]


class Worker:
    """Runs tasks in order, then ``refresh`` once the queue is empty.

    Args:
        refresh: redraws what the tasks have changed.
        failed: called with what a task or ``refresh`` raised.
    """

    def __init__(self, refresh: Task, failed: Callable[[Exception], None]) -> None:
        self._refresh = refresh
        self._failed = failed
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._is_awake = threading.Event()
        self._thread = background_thread(self._work, "mntrain-panel")

    def start(self) -> None:
        self._thread.start()

    def put(self, task: Task) -> None:
        """Enqueue a task."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Run ``refresh`` soon; repeated calls run it once."""
        if not self._is_awake.is_set():
            self._is_awake.set()
            self._tasks.put(self._is_awake.clear)

    def close(self) -> None:
        """End after the current task."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(task)
            if self._tasks.empty():
                self._do(self._refresh)

    def _do(self, task: Task) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - shown in the panel
            self._failed(error)
