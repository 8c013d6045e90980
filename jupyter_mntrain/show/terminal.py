"""Terminal screen: redraws a table in place, or prints plain lines where it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live

from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.show.failures import failure_lines
from jupyter_mntrain.show.progress_bars import PatientBar, TerminalBar
from jupyter_mntrain.show.safe_console import SafeConsole
from jupyter_mntrain.show.screen import Screen
from jupyter_mntrain.show.tables.job import progress_line, status_view

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress

REDRAW_EVERY_S = 1.0
"""Interval of redrawing a live table."""
LINE_EVERY_S = 10.0
"""Interval between lines in a log file or a pipe, where every line stays."""

PIPE_WIDTH = 140
"""Columns without a terminal; rich would use 80."""


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap pipes at 80 columns and adds no highlighting."""
    console = SafeConsole(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


class TerminalScreen(Screen):
    """Redraws in place on a terminal; elsewhere prints a line now and then.

    Args:
        program: for hints.
        clock: Unix time.
        bars: console for progress bars; default: stderr. No bars if it is not a terminal.
    """

    def __init__(
        self,
        console: Console,
        program: str,
        clock: Callable[[], float] = time.time,
        *,
        has_variables: bool = False,
        bars: Console | None = None,
    ) -> None:
        self.has_variables = has_variables
        self._console = console
        self._program = program
        self._clock = clock
        self._bars = make_console(stderr=True) if bars is None else bars

    def say(self, renderable: RenderableType) -> None:
        self._console.print(renderable, soft_wrap=True)

    def show(self, job: Job) -> None:
        """Do nothing: see :attr:`in_background`."""

    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        if self._console.is_terminal:
            self._redraw(job, timeout_s)
        else:
            say_lines(self.say, job, self._clock, timeout_s)

    def progress(self) -> AbstractContextManager[Progress]:
        if not self._bars.is_terminal or self._bars.is_dumb_terminal:
            return super().progress()
        return PatientBar(lambda: TerminalBar(self._bars))

    def _redraw(self, job: Job, timeout_s: float | None) -> None:
        told = job.view().attempt.number
        with Live(console=self._console, transient=True, auto_refresh=False) as live:
            for wait_s in waits(job, REDRAW_EVERY_S, timeout_s):
                report = status_view(job.summary(), job.view(), program=self._program)
                live.update(report, refresh=True)
                job.wait(wait_s)
                told = _say_failures(self.say, job, told)


def say_lines(
    say: Callable[[RenderableType], object],
    job: Job,
    clock: Callable[[], float],
    timeout_s: float | None = None,
) -> None:
    """Follow a job where every line stays: say how far it is now and then, until it has ended."""
    job.watch()
    told = job.view().attempt.number
    for wait_s in waits(job, LINE_EVERY_S, timeout_s):
        job.wait(wait_s)
        told = _say_failures(say, job, told)
        say(progress_line(job.summary(), clock()))


def _say_failures(say: Callable[[RenderableType], object], job: Job, told: int) -> int:
    """Say why attempts failed that another one followed; the number of the newest attempt."""
    attempt = job.view().attempt
    if attempt.number > told:
        for line in failure_lines(attempt, after=told):
            say(line)
    return max(told, attempt.number)


def waits(job: Job, every_s: float, timeout_s: float | None) -> Iterator[float]:
    """Yield how long to wait next, until the job has ended or the time is up."""
    deadline = inf if timeout_s is None else time.monotonic() + timeout_s
    while job.state not in TERMINAL and (left_s := deadline - time.monotonic()) > 0:
        yield min(every_s, left_s)


class QuietScreen(Screen):
    """For ``--json``: shows nothing and only waits.

    Args:
        screen: the screen it replaces.
    """

    def __init__(self, screen: Screen) -> None:
        self.in_background = screen.in_background
        self.cell_target, self.variables = screen.cell_target, screen.variables
        self.shows_pictures = screen.shows_pictures
        self.has_variables = screen.has_variables

    def say(self, renderable: RenderableType) -> None:
        """Do nothing: stdout is for data only."""

    def write(self, text: str) -> None:
        """Do nothing."""

    def ask(self, prompt: str) -> str:
        raise EOFError(prompt)

    def show(self, job: Job) -> None:
        """Do nothing."""

    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        job.watch()
        for wait_s in waits(job, REDRAW_EVERY_S, timeout_s):
            job.wait(wait_s)
