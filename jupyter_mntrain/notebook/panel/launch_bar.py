"""Launch bar of a panel: the button, a summary or the problem, and the commands."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.action import LAUNCHING, Action
from jupyter_mntrain.notebook.panel.widgets import box, html, put
from jupyter_mntrain.verbs.panel.form import Form

RETIRED = "This panel was reopened in a newer cell."


class LaunchBar:
    """The panel's last line.

    Args:
        do: runs a click's task in the panel's own thread.
        launch: starts the job.
    """

    def __init__(
        self, do: Callable[[Callable[[], None]], None], launch: Callable[[], None]
    ) -> None:
        self.shows_commands = False
        self.launch = ipywidgets.Button(description="Launch")
        self.launch.add_class("mnt-launch")
        self.why = html()
        self.why.add_class("mnt-grow")
        self.toggle = ipywidgets.Button(description="Show commands")
        self.commands = html()
        self.root = box("mnt-part mnt-bar", self.launch, self.why, self.toggle)
        self.launch.on_click(lambda _: do(launch))
        self.toggle.on_click(lambda _: do(self._toggle))

    def show(self, form: Form, action: Action) -> None:
        is_launching = action.name == LAUNCHING
        put(self.launch, description="Launching…" if is_launching else "Launch")
        put(self.launch, disabled=bool(form.blocked or action.name))
        problem = action.problem or (form.blocked.headline if form.blocked else "")
        if action.name:
            self.say(f"{action.name}…")
        elif problem:
            self.complain(problem)
        else:
            self.say(form.summary)

    def say(self, words: str) -> None:
        put(self.why, value=escape(words))

    def complain(self, words: str) -> None:
        put(self.why, value=pieces.icon("✕", "bad") + escape(words))

    def show_commands(self, text: str) -> None:
        word = "Hide" if self.shows_commands else "Show"
        put(self.toggle, description=f"{word} commands")
        put(self.commands, value=f"<pre>{escape(text)}</pre>" if text else "")

    def retire(self) -> None:
        put(self.launch, disabled=True)
        put(self.why, value=pieces.second(RETIRED))

    def _toggle(self) -> None:
        self.shows_commands = not self.shows_commands
