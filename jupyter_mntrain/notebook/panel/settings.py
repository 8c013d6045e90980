"""Panel settings: a widget for every choice that is not per node."""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets
import msgspec

from jupyter_mntrain.notebook.panel.row import Change, Listen
from jupyter_mntrain.notebook.panel.widgets import box, put, show
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.verbs.panel.choices import Choices, with_restart
from jupyter_mntrain.verbs.panel.form import Form

SCHEDULES = ("auto", *KINDS)
OF_RECIPE = ("schedule", "microbatches", "changes")
"""Hidden for scripts."""

WIDE = ("changes", "environment")
"""Fields with long values."""


def _text(description: str, placeholder: str, tooltip: str) -> ipywidgets.Text:
    return ipywidgets.Text(
        description=description,
        placeholder=placeholder,
        tooltip=tooltip,
        continuous_update=False,
    )


def _widgets() -> dict[str, ipywidgets.Widget]:
    return {
        "schedule": ipywidgets.Dropdown(description="Schedule", options=SCHEDULES),
        "microbatches": ipywidgets.IntText(
            description="Microbatches",
            continuous_update=False,
        ),
        "changes": _text(
            "Other settings",
            "train.learning_rate=3e-4",
            "Of the recipe, as --set takes them, with spaces between",
        ),
        "environment": _text(
            "Environment variables",
            "NCCL_DEBUG=INFO",
            "Of every rank: NAME=VALUE, or NAME to take its value from here, with spaces between",
        ),
        "port": _text("Port", "a free one", "On the head, for the rendezvous"),
        "waits": ipywidgets.Dropdown(
            description="Start",
            options=[("now", False), ("when all is free", True)],
            tooltip="Queue the job on its nodes until every GPU and port it needs is free",
        ),
        "restart": ipywidgets.Dropdown(
            description="Restart",
            options=[
                ("never", "never"),
                ("if it fails", "failed"),
                ("if it fails or stalls", "failed or stalled"),
            ],
            tooltip="From the newest checkpoint",
        ),
    }


class SettingsBar:
    """The settings widgets, by the field of :class:`Choices` that they set.

    Args:
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(self, listen: Listen, change: Change) -> None:
        self.widgets = _widgets()
        for name in WIDE:
            self.widgets[name].add_class("mnt-wide")
        self.root = box("mnt-fields", *self.widgets.values())
        self._change = change
        for name, widget in self.widgets.items():
            listen(widget, partial(self._set, name))

    def show(self, form: Form, choices: Choices, *, is_script: bool) -> None:
        for name, widget in self.widgets.items():
            show(widget, is_shown=not (is_script and name in OF_RECIPE))
            # Until one is chosen, the recipe's own value is shown.
            value = getattr(form if name in ("schedule", "microbatches") else choices, name)
            if value is not None:
                put(widget, value=value)

    def _set(self, name: str, value: Any) -> None:
        if name == "restart":
            self._change(lambda choices: with_restart(choices, value))
            return
        wanted = value.strip() if name == "port" else value
        self._change(lambda choices: msgspec.structs.replace(choices, **{name: wanted}))
