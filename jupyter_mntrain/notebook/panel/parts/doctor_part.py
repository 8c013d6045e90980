"""Doctor part of a panel: a line of findings, a button, and what a launch reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets
import msgspec

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import Change, Listen, check_line
from jupyter_mntrain.notebook.panel.widgets import block, box, html, put, put_lines, show
from jupyter_mntrain.verbs.panel.node_row import RowCheck


class DoctorPart:
    """The doctor's line and button; hidden while no node is chosen.

    Args:
        again: called when the button is clicked.
        listen: observes a widget.
        change: applies a change to the choices.
    """

    def __init__(self, again: Callable[[], None], listen: Listen, change: Change) -> None:
        self._change = change
        self._said: tuple[Problem, ...] = ()
        self.line = html()
        self.again = ipywidgets.Button(
            description="Check again", tooltip="Asks the chosen nodes what keeps them from training"
        )
        self.anyway = ipywidgets.Checkbox(
            description="Launch anyway",
            indent=False,
            tooltip="Skips the preflight checks: the job may fail at once, or hang",
        )
        listen(self.anyway, self._skip)
        self.said = box("mnt-plain")
        self._bar = box("mnt-check mnt-settings", self.line, self.again, self.anyway)
        self.root = box("mnt-plain", self._bar, self.said)
        self.again.on_click(lambda _: again())

    def show(
        self,
        line: str,
        said: Sequence[Problem],
        *,
        is_busy: bool,
        can_skip: bool,
        is_skipped: bool,
    ) -> None:
        put(self.line, value=pieces.second(line))
        show(self._bar, is_shown=bool(line))
        put(self.anyway, value=is_skipped)
        show(self.anyway, is_shown=can_skip or is_skipped)
        block(self.again, is_blocked=is_busy)
        if tuple(said) != self._said:
            self._said = tuple(said)
            checks = [RowCheck(level="slows", problem=one) for one in said]
            put_lines(self.said, [check_line(one, self._change) for one in checks])

    def _skip(self, value: bool) -> None:
        self._change(lambda choices: msgspec.structs.replace(choices, skips_doctor=value))
