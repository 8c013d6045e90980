"""Progress bars, shown once work takes longer than a second."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as RichProgress

from jupyter_mntrain.model.text.foreign import shown_name

PATIENCE_S = 1.0
"""Time after which a progress bar appears: short work needs none."""

REDRAW_EVERY_S: Final = 0.2
"""Interval of redrawing a progress bar."""

CLOSE_S: Final = 2.0
"""Timeout for the last redraw of a progress bar: a blocked page must not delay the work."""


class Bar(Protocol):
    """A visible progress bar; used by one thread."""

    def draw(self, what: str, done: int, total: int | None) -> None:
        """Show progress. Also called when nothing has changed, to show that work continues."""

    def close(self) -> None:
        """Remove the bar."""


class PatientBar:
    """Context manager that draws a bar in another thread, and only if the work takes long.

    Args:
        open_bar: called at most once, in the drawing thread.
        ended: set when the work is done; its ``wait`` is the only clock.
    """

    def __init__(self, open_bar: Callable[[], Bar], ended: threading.Event | None = None) -> None:
        self._open_bar = open_bar
        self._ended = threading.Event() if ended is None else ended
        self._now: tuple[str, int, int | None] | None = None
        # The context tells the kernel which cell output belongs to.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._run), name="mntrain progress", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(CLOSE_S)

    def report(self, what: str, done: int, total: int | None) -> None:
        # A single assignment needs no lock.
        self._now = (shown_name(what), done, total)

    def _run(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        with suppress(Exception):  # a failing page must not stop the work
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
    """A progress line in a terminal, removed when closed.

    Args:
        console: on stderr, to keep stdout clean.
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
            # A new task, because rich keeps a known total.
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(what, total=total)
            self._piece = (what, total)
        self._progress.update(self._progress.task_ids[0], completed=done)
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()
