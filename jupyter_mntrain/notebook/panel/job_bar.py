"""Job bar of a panel: shows the launched job's state and stacks, and stops it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import ipywidgets

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.notebook.panel.widgets import block, blocked, box, html, put, show
from jupyter_mntrain.show import formats

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class JobBar:
    """One line and its buttons; hidden until a job is launched.

    Args:
        do: runs a click's task in the panel's own thread.
        stop: stops the job, after a confirmation.
        ask: asks its ranks for their stacks.
        leave: puts the focus elsewhere: the buttons will be gone.
    """

    def __init__(
        self,
        do: Callable[[Callable[[], None]], None],
        stop: Callable[[Job], None],
        ask: Callable[[Job], None],
        leave: Callable[[], None],
    ) -> None:
        self.job: Job | None = None
        self._stop_job = stop
        self._ask_ranks = ask
        self._leave = leave
        self._asks = False
        self._focus: Callable[[], None] | None = None
        self.line = html()
        self.line.add_class("mnt-grow")
        self.stacks = ipywidgets.Button(
            description="Stacks", tooltip="Where every rank is now, for a job that hangs"
        )
        self.stop = ipywidgets.Button(description="Stop…")
        self.stop_now = ipywidgets.Button(description="Stop it")
        self.keep = ipywidgets.Button(description="Keep it running")
        for button in (self.stop, self.stop_now):
            button.add_class("mnt-stop")
        buttons = (self.stacks, self.stop, self.stop_now, self.keep)
        self.shown_stacks = html()
        self.root = box(
            "mnt-part mnt-plain", box("mnt-bar", self.line, *buttons), self.shown_stacks
        )
        self.stacks.on_click(lambda _: do(self._wanted))
        self.stop.on_click(lambda _: do(lambda: self._ask(asks=True)))
        self.keep.on_click(lambda _: do(lambda: self._ask(asks=False)))
        self.stop_now.on_click(lambda _: do(self._confirmed))

    @property
    def text(self) -> str:
        """The line as HTML; empty without a job."""
        if self.job is None:
            return ""
        try:
            state = self.job.state
        except MntrainError as error:
            return escape(f"{self.job.id}: {error}")
        asks = " Stop it? Unsaved progress is lost." if self._asks else ""
        return escape(f"{formats.STATE_ICONS[state]} {self.job.id} {state}.{asks}")

    def show(self, *, is_busy: bool) -> None:
        text = self.text
        show(self.root, is_shown=bool(text))
        put(self.line, value=text)
        is_open = self.job is not None and self.job.state not in TERMINAL
        show(self.stop, is_shown=is_open and not self._asks)
        for button in (self.stop_now, self.keep):
            show(button, is_shown=is_open and self._asks)
        show(self.stacks, is_shown=is_open and not self._asks)
        for button in (self.stop, self.stacks):
            block(button, is_blocked=is_busy)
        # Once it is shown: what is hidden takes no focus.
        focus, self._focus = self._focus, None
        if focus is not None:
            focus()

    def show_stacks(self, text: str) -> None:
        """Show stacks below the line until others are asked for; empty hides them."""
        put(self.shown_stacks, value=f"<pre>{escape(text)}</pre>" if text else "")

    def _wanted(self) -> None:
        if self.job is not None and not blocked(self.stacks):
            self._ask_ranks(self.job)

    def _ask(self, *, asks: bool) -> None:
        self._asks = asks and not blocked(self.stop)
        # A person who has pressed Enter once too often stops nothing.
        self._focus = self.keep.focus if self._asks else self.stop.focus

    def _confirmed(self) -> None:
        self._asks, self._focus = False, self._leave
        if self.job is not None:
            self._stop_job(self.job)
