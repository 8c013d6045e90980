"""Progress bars: drawn once the driver's own work takes longer than a second."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as RichProgress

from jupyter_mntrain.model import tunables

PATIENCE_S = tunables.seconds("terminal.bar_after_s")

REDRAW_EVERY_S: Final = 0.2

CLOSE_S: Final = 2.0
"""For the last drawing to end. A page that takes nothing must not hold up the work."""


class Bar(Protocol):
    """Something to draw on; used by one thread."""

    def draw(self, what: str, done: int, total: int | None) -> None:
        """Show this. Called again with the same now and then, so that it is seen to live."""

    def close(self) -> None:
        """Leave nothing behind."""


class PatientBar:
    """A progress that is drawn from another thread, and only if the work takes its time.

    Use it as a context manager around the work.

    Args:
        open_bar: called at most once, in the thread that draws.
        ended: set when the work is over; its ``wait`` is the only clock.
    """

    def __init__(self, open_bar: Callable[[], Bar], ended: threading.Event | None = None) -> None:
        self._open_bar = open_bar
        self._ended = threading.Event() if ended is None else ended
        self._now: tuple[str, int, int | None] | None = None
        # A kernel knows by the context to which cell an output belongs.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._run), name="mntrain progress", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(CLOSE_S)

    def report(self, what: str, done: int, total: int | None) -> None:
        # One assignment: whoever reads it sees the whole of it, without a lock.
        self._now = (what, done, total)

    def _run(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        with suppress(Exception):  # whatever ails the page, the work itself goes on
            self._draw()

    def _draw(self) -> None:
        bar: Bar | None = None
        try:
            while True:
                if self._now is not None:
                    bar = bar or self._open_bar()
                    bar.draw(*self._now)
                if self._ended.wait(REDRAW_EVERY_S):
                    return
        finally:
            if bar is not None:
                bar.close()


class TerminalBar:
    """One line of a terminal, gone when it is closed.

    Args:
        console: of stderr: what is printed to stdout stays clean.
    """

    def __init__(self, console: Console) -> None:
        self._progress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._piece: tuple[str, int | None] | None = None
        self._progress.start()

    def draw(self, what: str, done: int, total: int | None) -> None:
        if self._piece != (what, total):
            # A new one, because rich keeps a total that was once known.
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(what, total=total)
            self._piece = (what, total)
        self._progress.update(self._progress.task_ids[0], completed=done)
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()
