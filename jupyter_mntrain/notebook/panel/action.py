"""Panel action: launches, measures or stops in its own thread, so that clicks still work."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.notebook.background import background_thread

LAUNCHING = "Launching"
RESUMING = "Resuming"


class Action:
    """Runs at most one action at a time; :attr:`name` is empty while none runs.

    Args:
        put: runs a task in the panel's own thread.
        say: shows the progress.
        complain: shows a problem at once, even if the rest of the panel cannot be drawn.
        changed: called after :attr:`name` or :attr:`problem` changed.
    """

    def __init__(
        self,
        put: Callable[[Callable[[], None]], None],
        say: Callable[[str], None],
        complain: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.name = ""
        self.problem = ""
        self.can_cancel = False
        self._is_canceled = threading.Event()
        self._put = put
        self._say = say
        self._complain = complain
        self._changed = changed

    def begin(self, name: str, work: Callable[[], object], *, can_cancel: bool = False) -> None:
        """Start ``work`` unless another action is running.

        Args:
            can_cancel: whether it waits by :meth:`sleep`.
        """
        if self.name:
            return
        self.name, self.can_cancel = name, can_cancel
        self._is_canceled.clear()

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - shown in the panel
                problem = error
                self._put(lambda: self.failed(problem))
            finally:
                self._put(self._done)

        background_thread(run, "mntrain-panel-action").start()

    def cancel(self) -> None:
        """Cancel the action at its next wait."""
        self.can_cancel = False
        self._is_canceled.set()
        self._changed()

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the action is canceled.

        Raises:
            RefusedError: it is.
        """
        if self._is_canceled.wait(seconds):
            raise RefusedError("you canceled the launch", kind=Kind.NODES_TAKEN, fix="launch again")

    def report(self, what: str, done: int, total: int | None) -> None:
        """Show progress; may be called from any thread."""
        count = f" {done} of {total}" if total else ""
        self._put(lambda: self._report(f"{what}{count}"))

    def failed(self, error: Exception) -> None:
        self.problem, is_undone = f"{type(error).__name__}: {error}.", True
        if isinstance(error, MntrainError):
            self.problem, is_undone = str(error), not error.left_behind
        if self.name in (LAUNCHING, RESUMING) and is_undone:
            self.problem += " Nothing was started."
        self._complain(self.problem)
        self._changed()

    def _report(self, words: str) -> None:
        if self.name:
            self._say(f"{self.name}: {words}")

    def _done(self) -> None:
        self.name, self.can_cancel = "", False
        self._changed()
