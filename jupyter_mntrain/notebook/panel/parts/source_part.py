"""Source part of a panel: where nodes come from, and what to request from a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import Change, Listen
from jupyter_mntrain.notebook.panel.widgets import box, html, put, put_lines
from jupyter_mntrain.sources.registry import sources, title_of
from jupyter_mntrain.verbs.panel.source.source_fields import SourceField, with_source, with_value

OWN = "this cluster"


class SourcePart:
    """A choice of source, and a field for each option that the source declares.

    Args:
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(self, listen: Listen, change: Change) -> None:
        self._listen = listen
        self._change = change
        self._source = ""
        self.choice = ipywidgets.Dropdown(
            description="Nodes of",
            options=[(OWN, ""), *((title_of(one), one) for one in sources())],
            tooltip="Those that have joined this cluster, or new ones that a scheduler grants",
        )
        self.widgets: dict[str, ipywidgets.DOMWidget] = {}
        self.problems: dict[str, ipywidgets.HTML] = {}
        self._fields = box("mnt-fields")
        self.root = box("mnt-plain", self._fields)
        listen(self.choice, lambda source: change(lambda choices: with_source(choices, source)))

    def show(self, source: str, fields: Sequence[SourceField]) -> None:
        """Show the fields of a source; none for the cluster's own nodes."""
        put(self.choice, value=source)
        if source != self._source:
            self._source = source
            self._make(fields)
        for field in fields:
            name, problem = field.option.name, field.problem
            put(self.widgets[name], value=field.text)
            wrong = pieces.icon("✕", "bad") + escape(str(problem)) if problem else ""
            put(self.problems[name], value=wrong)

    def _make(self, fields: Sequence[SourceField]) -> None:
        widgets = {one.option.name: _widget(one) for one in fields}
        self.problems = {name: html() for name in widgets}
        for name, widget in widgets.items():
            self._listen(widget, partial(self._set, name))
        lines = [box("mnt-field", widgets[name], self.problems[name]) for name in widgets]
        put_lines(self._fields, lines)
        self.widgets = widgets

    def _set(self, name: str, text: str) -> None:
        self._change(lambda choices: with_value(choices, name, text))


def _widget(field: SourceField) -> ipywidgets.DOMWidget:
    option = field.option
    label = option.name.replace("-", " ").capitalize()
    tooltip = f"{option.help[0].upper()}{option.help[1:]}"
    if option.kind == "choice":
        choices = [("default", ""), *((one, one) for one in option.choices)]
        return ipywidgets.Dropdown(description=label, options=choices, tooltip=tooltip)
    kind = ipywidgets.Textarea if option.kind == "lines" else ipywidgets.Text
    return kind(
        description=label, placeholder=option.example, tooltip=tooltip, continuous_update=False
    )
