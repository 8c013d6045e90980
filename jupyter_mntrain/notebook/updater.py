"""Updater: one background thread per kernel that redraws live views while there are any."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from jupyter_mntrain.model import tunables
from jupyter_mntrain.notebook.background import background_thread

INTERVAL_S = tunables.seconds("notebook.picture_interval_s")

MOST_INTERVAL_S = 60.0
"""Longest interval, for pictures that take long to draw."""

DUTY = 0.015
"""Largest share of the kernel's time for drawing: a picture that takes 0.3 s is redrawn every 20
s."""

LOOK_EVERY_S = 0.5
"""Interval of looking for a view that cannot wait for its next picture."""

CLOSE_S = 5.0
"""Timeout for the picture in progress when the kernel ends."""


class View(Protocol):
    """A view that is redrawn until :meth:`frame` returns ``True``."""

    @property
    def interval_s(self) -> float:
        """The shortest time between two frames."""

    def is_urgent(self) -> bool:
        """Whether to draw now, as the job has ended. Cheap; must not raise."""

    def frame(self) -> bool:
        """Draw one frame; return ``True`` if it was the last. Must not raise."""


class Updater:
    """Redraws every view in turn. The thread lives while there are views.

    Args:
        clock: monotonic seconds.
        cost: CPU seconds of the calling thread.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._cost = cost
        self._seen: weakref.WeakSet[View] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._due: dict[View, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, view: View) -> None:
        """Start redrawing a view."""
        with self._changed:
            self._due[view] = self._clock()
            if self._thread is None:
                self._thread = background_thread(self._work, "mntrain-live-view")
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop redrawing and end the thread."""
        with self._changed:
            self._due.clear()
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S)

    def _work(self) -> None:
        while (view := self._next()) is not None:
            begun, spent = self._clock(), self._cost()
            is_done = view.frame()
            wait = self._wait_s(view, self._cost() - spent)
            with self._changed:
                if is_done:
                    self._due.pop(view, None)
                elif view in self._due:
                    self._due[view] = begun + wait

    def _wait_s(self, view: View, spent: float) -> float:
        if view not in self._seen:
            # The first frame also loads matplotlib.
            self._seen.add(view)
            return view.interval_s
        return max(view.interval_s, min(spent / DUTY, MOST_INTERVAL_S))

    def _next(self) -> View | None:
        """Wait for the next view that is due; return ``None`` if none is left."""
        with self._changed:
            while self._due:
                view = min(self._due, key=lambda one: self._due[one])
                rest = self._due[view] - self._clock()
                urgent = view if rest <= 0 else next((v for v in self._due if v.is_urgent()), None)
                if urgent is not None:
                    return urgent
                self._changed.wait(min(rest, LOOK_EVERY_S))
            self._thread = None
            return None
