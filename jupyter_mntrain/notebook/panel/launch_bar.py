"""Launch bar of a panel: the buttons, a summary or the problem, and the commands."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.action import LAUNCHING, RESUMING, Action
from jupyter_mntrain.notebook.panel.row import Change
from jupyter_mntrain.notebook.panel.widgets import block, box, html, put, put_lines, show
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.resumption import Resumption

RETIRED = "This panel was reopened in a newer cell."


class LaunchBar:
    """The panel's last lines.

    Args:
        do: runs a click's task in the panel's own thread.
        launch: starts the job.
        resume: goes on with the ended one.
        cancel: ends a launch that waits for nodes.
        change: applies a change to the choices.
    """

    def __init__(
        self,
        do: Callable[[Callable[[], None]], None],
        launch: Callable[[], None],
        resume: Callable[[], None],
        cancel: Callable[[], None],
        change: Change,
    ) -> None:
        self.shows_commands = False
        self._change = change
        self._resume_shown: Resumption | None = None
        self.launch = ipywidgets.Button(description="Launch")
        self.resume = ipywidgets.Button(description="Resume")
        for button in (self.launch, self.resume):
            button.add_class("mnt-launch")
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="No longer wait for nodes, and leave nothing behind"
        )
        self.cancel.add_class("mnt-stop")
        for hidden in (self.resume, self.cancel):
            show(hidden, is_shown=False)
        self.why = html()
        self.why.add_class("mnt-grow")
        self.toggle = ipywidgets.Button(description="Show commands")
        self.commands = html()
        self.resume_lines = box("mnt-plain")
        bar = box("mnt-bar", self.launch, self.resume, self.cancel, self.why, self.toggle)
        self.root = box("mnt-part mnt-plain", bar, self.resume_lines)
        self.launch.on_click(lambda _: do(launch))
        self.resume.on_click(lambda _: do(resume))
        self.cancel.on_click(lambda _: do(cancel))
        self.toggle.on_click(lambda _: do(self._toggle))

    def show(self, form: Form, action: Action, resume: Resumption | None, *, again: bool) -> None:
        """Show what can be launched.

        Args:
            resume: of the ended job, if there is one.
            again: whether a launch starts a job over.
        """
        label = "Start over" if again else "Launch"
        is_launching = action.name == LAUNCHING
        put(self.launch, description="Launching…" if is_launching else label)
        problem = action.problem or (form.blocked.headline if form.blocked else "")
        if action.name:
            self.say(f"{action.name}…")
        elif problem:
            self.complain(problem)
        else:
            self.say(" ".join(filter(None, (form.summary, form.chosen))))
        # The reason stands there before the button does nothing.
        is_held = bool(form.blocked or action.name)
        block(self.launch, is_blocked=is_held)
        self._show_resume(resume, action, is_held=is_held)
        show(self.cancel, is_shown=action.can_cancel)

    def say(self, words: str) -> None:
        put(self.why, value=escape(words))

    def complain(self, words: str) -> None:
        put(self.why, value=pieces.icon("✕", "bad") + escape(words))

    def show_commands(self, text: str) -> None:
        word = "Hide" if self.shows_commands else "Show"
        put(self.toggle, description=f"{word} commands")
        put(self.commands, value=f"<pre>{escape(text)}</pre>" if text else "")

    def retire(self) -> None:
        for button in (self.launch, self.resume):
            block(button, is_blocked=True)
        put(self.why, value=pieces.second(RETIRED))

    def _show_resume(self, resume: Resumption | None, action: Action, *, is_held: bool) -> None:
        # What it means stands there before the button.
        if resume != self._resume_shown:
            self._resume_shown = resume
            put_lines(self.resume_lines, [] if resume is None else [self._resume_line(resume)])
        if resume is not None:
            label = "Resuming…" if action.name == RESUMING else resume.label
            put(self.resume, description=label)
            block(self.resume, is_blocked=is_held or not resume.can_start)
        show(self.resume, is_shown=resume is not None)

    def _resume_line(self, resume: Resumption) -> ipywidgets.Box:
        mark = "" if resume.can_start else pieces.icon("✕", "bad")
        line = box("mnt-check", html(mark + escape(resume.text)))
        fix = resume.fix
        if fix is not None:
            button = ipywidgets.Button(description=fix.label)
            button.on_click(lambda _: self._change(lambda _: fix.choices))
            line.children = (*line.children, button)
        return line

    def _toggle(self) -> None:
        self.shows_commands = not self.shows_commands
