"""Change bell: wakes threads that wait for a condition after every change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jupyter_mntrain.model.errors import bad_argument


class Changes:
    """A condition that one thread notifies and any number of others wait for."""

    def __init__(self) -> None:
        self._bell = threading.Condition()
        self._count = 0
        self._listeners: tuple[Callable[[], None], ...] = ()

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after every change, in the notifying thread. Returns the unsubscriber.

        Args:
            tell: must return at once and not raise.
        """
        with self._bell:
            self._listeners = (*self._listeners, tell)

        def unsubscribe() -> None:
            with self._bell:
                self._listeners = tuple(one for one in self._listeners if one is not tell)

        return unsubscribe

    def notify(self) -> None:
        """Wake all waiting threads after a change."""
        with self._bell:
            self._count += 1
            self._bell.notify_all()
            listeners = self._listeners
        for tell in listeners:
            tell()

    def wait_until(self, is_true: Callable[[], object], timeout_s: float | None) -> bool:
        """Wait until ``is_true()``, checked after every change; ``False`` after ``timeout_s``.

        It is called without a lock, so it may itself call into the notifying thread.

        Raises:
            SpecError: ``timeout_s`` is negative, or no number.
        """
        if timeout_s is not None and not _is_time(timeout_s):
            raise bad_argument(
                "timeout_s", timeout_s, "seconds, 0 or more, or None to wait without a limit"
            )
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = self._count
            if is_true():
                return True
            rest_s = None if deadline is None else deadline - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                return False
            with self._bell:
                if self._count == seen:
                    self._bell.wait(None if rest_s is None else min(rest_s, threading.TIMEOUT_MAX))


def _is_time(value: float) -> bool:
    return isinstance(value, int | float) and value >= 0
