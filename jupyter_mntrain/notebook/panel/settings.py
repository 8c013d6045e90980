"""Panel settings: a widget for every choice that is not per node."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import ipywidgets
import msgspec

from jupyter_mntrain.notebook.panel.row import Change, Listen
from jupyter_mntrain.notebook.panel.widgets import box, put, show
from jupyter_mntrain.recipe.sections import PipelineSection
from jupyter_mntrain.verbs.panel.choices import RESTARTS, Choices
from jupyter_mntrain.verbs.panel.form import Form

SCHEDULES = tuple(
    msgspec.inspect.type_info(PipelineSection).fields[0].type.values  # type: ignore[attr-defined]
)
MOST_MICROBATCHES = 65536


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of :class:`Choices` and the widget that shows it.

    Args:
        is_of_recipe: hidden for scripts.
    """

    field: str
    widget: type[ipywidgets.Widget]
    traits: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_of_recipe: bool = False


def _text(name: str, placeholder: str, *, width: str | None = None, **more: Any) -> Setting:
    traits = {"placeholder": placeholder, "continuous_update": False, "layout": {"width": width}}
    return Setting(name, ipywidgets.Text, {"description": name.title(), **traits}, **more)


SETTINGS = (
    Setting(
        "schedule",
        ipywidgets.Dropdown,
        {"description": "Schedule", "options": SCHEDULES},
        is_of_recipe=True,
    ),
    Setting(
        "microbatches",
        ipywidgets.BoundedIntText,
        {
            "description": "Microbatches",
            "min": 1,
            "max": MOST_MICROBATCHES,
            "continuous_update": False,
            "layout": {"width": "170px"},
        },
        is_of_recipe=True,
    ),
    _text("changes", "train.steps=50", is_of_recipe=True),
    _text("environment", "NCCL_DEBUG=INFO"),
    _text("port", "a free one", width="132px"),
    Setting(
        "waits",
        ipywidgets.Dropdown,
        {
            "description": "Start",
            "options": [("now", False), ("when all is free", True)],
            "tooltip": "Queue the job on its nodes until every GPU and port it needs is free",
        },
    ),
    Setting(
        "restart",
        ipywidgets.Dropdown,
        {
            "description": "Restart",
            "options": [
                ("never", "never"),
                ("if it fails", "failed"),
                ("if it fails or stalls", "failed or stalled"),
            ],
            "tooltip": f"From the newest checkpoint, up to {RESTARTS} times",
        },
    ),
)


class SettingsBar:
    """Settings widgets, by the field of :class:`Choices` that they set.

    Args:
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(self, listen: Listen, change: Change) -> None:
        self.widgets = {one.field: one.widget(**one.traits) for one in SETTINGS}
        self.root = box("mnt-settings mnt-bar", *self.widgets.values())
        self._change = change
        for name, widget in self.widgets.items():
            listen(widget, partial(self._set, name))

    def show(self, form: Form, choices: Choices, *, is_script: bool) -> None:
        for one in SETTINGS:
            widget = self.widgets[one.field]
            show(widget, is_shown=not (is_script and one.is_of_recipe))
            # Until one is chosen, the recipe's own value is shown.
            in_effect = form if one.field in ("schedule", "microbatches") else choices
            value = getattr(in_effect, one.field)
            if value is not None:
                put(widget, value=value)

    def _set(self, name: str, value: Any) -> None:
        wanted = value.strip() if name == "port" else value
        self._change(lambda choices: msgspec.structs.replace(choices, **{name: wanted}))
