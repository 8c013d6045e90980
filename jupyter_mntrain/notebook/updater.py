"""The one thread of a kernel that keeps live views up to date."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jupyter_mntrain.notebook.display import Screen
from jupyter_mntrain.notebook.liveview import LiveView

TICK_S = 0.5
"""Between looks at all views; each decides by itself whether it is time to draw."""


class Updater:
    """Starts its thread with the first view and ends it with the last.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._changed = threading.Condition()
        self._views: list[LiveView] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, view: LiveView) -> None:
        """Keep ``view`` up to date until it is over. An older view of the same job ends here."""
        with self._changed:
            self._views = [v for v in self._views if v.job.id != view.job.id] + [view]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mntrain-view", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, view: LiveView) -> None:
        """Until ``view`` shows its last picture. Ctrl-C only ends the waiting."""
        with self._changed:
            while view in self._views and not self._is_closed:
                self._changed.wait(TICK_S)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            for view in list(self._views):
                self._update(view)
            with self._changed:
                self._views = [view for view in self._views if not view.is_over]
                self._changed.notify_all()
                if self._is_closed or not self._views:
                    self._thread = None
                    return
                self._changed.wait(TICK_S)
                if self._is_closed:
                    return

    def _update(self, view: LiveView) -> None:
        try:
            view.update(self._clock())
        except Exception as error:  # noqa: BLE001 - one broken view must not end the others
            view.fail(error)
