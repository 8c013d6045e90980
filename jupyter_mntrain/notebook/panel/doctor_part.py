"""Doctor part of a panel: one line of what it found, a button, and what a launch said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import Change, check_line
from jupyter_mntrain.notebook.panel.widgets import block, box, html, put, put_lines, show
from jupyter_mntrain.verbs.panel.checks.check import RowCheck


class DoctorPart:
    """Hidden while no node is chosen.

    Args:
        again: called when the button is clicked.
        change: applies a change to the choices.
    """

    def __init__(self, again: Callable[[], None], change: Change) -> None:
        self._change = change
        self._said: tuple[Problem, ...] = ()
        self.line = html()
        self.again = ipywidgets.Button(
            description="Check again", tooltip="Asks the chosen nodes what keeps them from training"
        )
        self.said = box("mnt-plain")
        self._bar = box("mnt-check mnt-settings", self.line, self.again)
        self.root = box("mnt-plain", self._bar, self.said)
        self.again.on_click(lambda _: again())

    def show(self, line: str, said: Sequence[Problem], *, is_busy: bool) -> None:
        put(self.line, value=pieces.second(line))
        show(self._bar, is_shown=bool(line))
        block(self.again, is_blocked=is_busy)
        if tuple(said) != self._said:
            self._said = tuple(said)
            checks = [RowCheck(level="warning", problem=one) for one in said]
            put_lines(self.said, [check_line(one, self._change) for one in checks])
