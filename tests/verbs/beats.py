"""Time of progress bars: it passes when a test says so."""

from __future__ import annotations

import threading

DEADLINE_S = 60.0


class Beats(threading.Event):
    """An event whose waits end one by one, by :meth:`beat`."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self._asked = threading.Semaphore(0)
        self._passed = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        self._asked.release()
        assert self._passed.acquire(timeout=DEADLINE_S)
        return self.is_set()

    def set(self) -> None:
        super().set()
        self._passed.release()

    def begun(self) -> None:
        """Once the thread waits for the first time."""
        assert self._asked.acquire(timeout=DEADLINE_S)

    def beat(self) -> None:
        """Let the wait of now end; returns when the thread waits again."""
        self._passed.release()
        self.begun()


class Wall:
    """A bar that keeps what was drawn on it."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, int, int | None]] = []
        self.opened = 0
        self.closed = 0

    def open(self) -> Wall:
        self.opened += 1
        return self

    def draw(self, what: str, done: int, total: int | None) -> None:
        self.drawn.append((what, done, total))

    def close(self) -> None:
        self.closed += 1
