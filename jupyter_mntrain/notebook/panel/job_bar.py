"""Job bar of a panel: shows the launched job's state and stacks, and stops it, saving or not."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import ipywidgets

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.saves import requested_save
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.notebook.panel.widgets import block, blocked, box, html, put, show
from jupyter_mntrain.show import formats

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

STOP = "Stop it"
STOP_UNSAVED = "Stop without saving"


class JobBar:
    """A status line and its buttons; hidden until a job is launched.

    Args:
        do: runs a click's task in the panel's own thread.
        stop: stops the job, after a confirmation.
        save: has the job save and then end.
        ask: asks its ranks for their stacks.
        leave: puts the focus elsewhere: the buttons will be gone.
    """

    def __init__(
        self,
        do: Callable[[Callable[[], None]], None],
        stop: Callable[[Job], None],
        save: Callable[[Job], None],
        ask: Callable[[Job], None],
        leave: Callable[[], None],
    ) -> None:
        self.job: Job | None = None
        self._stop_job = stop
        self._save_job = save
        self._ask_ranks = ask
        self._leave = leave
        self._asks = False
        self._saving: JobView | None = None
        """The job when the nodes accepted a save."""
        self._focus: Callable[[], None] | None = None
        self.line = html()
        self.line.add_class("mnt-grow")
        self.stacks = ipywidgets.Button(
            description="Stacks", tooltip="Where every rank is now, for a job that hangs"
        )
        self.stop = ipywidgets.Button(description="Stop…")
        self.keep = ipywidgets.Button(description="Keep it running")
        self.save = ipywidgets.Button(description="Save, then stop")
        self.stop_now = ipywidgets.Button(description=STOP)
        for button in (self.stop, self.stop_now):
            button.add_class("mnt-stop")
        # A second click at the same place keeps it running.
        buttons = (self.keep, self.save, self.stop_now, self.stacks, self.stop)
        self.shown_stacks = html()
        self.root = box(
            "mnt-part mnt-plain", box("mnt-bar", self.line, *buttons), self.shown_stacks
        )
        self.stacks.on_click(lambda _: do(self._wanted))
        self.stop.on_click(lambda _: do(lambda: self._ask(asks=True)))
        self.keep.on_click(lambda _: do(lambda: self._ask(asks=False)))
        self.save.on_click(lambda _: do(lambda: self._confirmed(self._save_job)))
        self.stop_now.on_click(lambda _: do(lambda: self._confirmed(self._stop_job)))

    @property
    def text(self) -> str:
        """The line as HTML; empty without a job."""
        if self.job is None:
            return ""
        try:
            view = self.job.view()
        except MntrainError as error:
            return escape(f"{self.job.id}: {error}")
        asks = self._asks and view.state not in TERMINAL
        more = _at_stake(view) if asks else self._of_saving(view)
        line = f"{formats.STATE_ICONS[view.state]} {self.job.id} {view.state}. {more}"
        return escape(line.rstrip())

    @property
    def can_save(self) -> bool:
        """Whether the job can be asked to save now."""
        view = self._view()
        return view is not None and _saves(view) and self._of_saving(view) == ""

    def show(self, *, is_busy: bool) -> None:
        text, can_save = self.text, self.can_save
        show(self.root, is_shown=bool(text))
        put(self.line, value=text)
        view = self._view()
        is_open = view is not None and view.state not in TERMINAL
        # What has ended is not asked about, and neither is the next job.
        self._asks = self._asks and is_open
        put(self.stop_now, description=STOP_UNSAVED if can_save else STOP)
        for button in (self.keep, self.stop_now):
            show(button, is_shown=is_open and self._asks)
        show(self.save, is_shown=can_save and self._asks)
        for button in (self.stop, self.stacks):
            show(button, is_shown=is_open and not self._asks)
            block(button, is_blocked=is_busy)
        # Once it is shown: what is hidden takes no focus.
        focus, self._focus = self._focus, None
        if focus is not None:
            focus()

    def will_save(self, view: JobView) -> None:
        """Say that the job saves and then ends, until it has.

        Args:
            view: of the job before it was asked.
        """
        self._saving = view

    def show_stacks(self, text: str) -> None:
        """Show stacks below the line until the next request; empty hides them."""
        put(self.shown_stacks, value=f"<pre>{escape(text)}</pre>" if text else "")

    def _wanted(self) -> None:
        if self.job is not None and not blocked(self.stacks):
            self._ask_ranks(self.job)

    def _ask(self, *, asks: bool) -> None:
        self._asks = asks and not blocked(self.stop)
        # A person who has pressed Enter once too often stops nothing.
        self._focus = self.keep.focus if self._asks else self.stop.focus

    def _confirmed(self, end: Callable[[Job], None]) -> None:
        self._asks, self._focus = False, self._leave
        if self.job is not None:
            end(self.job)

    def _view(self) -> JobView | None:
        """Return the job's view; ``None`` without a job, or if it is not known at the moment."""
        try:
            return self.job.view() if self.job is not None else None
        except MntrainError:
            return None

    def _of_saving(self, view: JobView) -> str:
        """Say how the requested save went; empty if none was requested."""
        if self._saving is None or _attempt(self._saving) != _attempt(view):
            return ""
        if (saved := requested_save(view, self._saving)) is not None:
            if saved.problem is not None:
                return str(saved.problem)
            return f"Step {formats.count(saved.step)} was saved."
        if view.state in TERMINAL:
            return "It ended before it had saved."
        return "It saves when its step has ended, then stops."


def _attempt(view: JobView) -> tuple[JobId, int]:
    return view.job_id, view.attempt.number


def _saves(view: JobView) -> bool:
    """Whether the job's ranks run and can save a checkpoint on request."""
    saving = (part.saves and part.state == "running" for part in view.parts)
    return view.state not in TERMINAL and any(saving)


def _at_stake(view: JobView) -> str:
    if view.saved_step is None:
        # A script may save without telling.
        return "Stop it? Unsaved progress is lost."
    step = formats.count(view.saved_step)
    return f"Stop it? The newest checkpoint is of step {step}: what came after is lost."
