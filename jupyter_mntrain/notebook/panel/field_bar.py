"""Panel fields: a text field for each common setting, with its problem next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from types import MappingProxyType

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import Change, Listen
from jupyter_mntrain.notebook.panel.widgets import box, html, put, show
from jupyter_mntrain.verbs.panel.choices import with_field
from jupyter_mntrain.verbs.panel.fields import FormField

LABELS = {
    "steps": "Steps",
    "batch": "Batch",
    "data": "Data",
    "name": "Name",
    "priority": "Priority",
}

RESTART_LABELS = {
    "restarts": "Max restarts",
    "min_nodes": "Min nodes",
}
"""Fields that stand next to the choice of when to restart."""

PLACE_LABELS = {
    "project": "Project folder",
    "workdir": "Working directory",
    "python": "Interpreter",
}
"""Fields that are folded at first."""

WIDE = frozenset(("data", *PLACE_LABELS))
"""Fields with long values."""

PLACEHOLDERS = {
    "min_nodes": "all",
    "project": "a folder here, to send",
    "workdir": "a folder that every node has",
    "python": "PATH, conda:NAME or uv:DIR",
}

TOOLTIPS = {
    "batch": "Sequences per optimizer step, over all pipelines",
    "data": "A directory or file that every node has, or a dataset",
    "priority": "Position in the queue, -1000 to 1000, higher first",
    "restarts": "Maximum number of restarts",
    "min_nodes": "On a restart, continue without lost nodes while this many remain",
    "project": "Its files are sent; empty: the script, and its folder if it imports from it",
    "workdir": "The ranks run in it; empty: in a folder of the job's own",
    "python": "Of the ranks, on every node; empty: the one that each agent was started with",
}


class FieldBar:
    """The text fields, by the field of :class:`Choices` that they set.

    Args:
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
        labels: its fields, each with its label.
    """

    def __init__(
        self,
        listen: Listen,
        change: Change,
        labels: Mapping[str, str] = MappingProxyType(LABELS),
    ) -> None:
        self._change = change
        self._own: dict[str, str] = {}
        self.widgets: dict[str, ipywidgets.Text] = {}
        self.problems: dict[str, ipywidgets.HTML] = {}
        self._parts: dict[str, ipywidgets.Box] = {}
        for name, label in labels.items():
            field = ipywidgets.Text(
                description=label,
                placeholder=PLACEHOLDERS.get(name, ""),
                tooltip=TOOLTIPS.get(name),
                continuous_update=False,
            )
            problem = html()
            self.widgets[name], self.problems[name] = field, problem
            classes = "mnt-field mnt-wide" if name in WIDE else "mnt-field"
            self._parts[name] = box(classes, field, problem)
            listen(field, partial(self._set, name))
        self.root = box("mnt-fields", *self._parts.values())

    def show(self, fields: Sequence[FormField]) -> None:
        """Show the fields; those that the form lacks are hidden."""
        given = {field.name: field for field in fields}
        for name, widget in self.widgets.items():
            field = given.get(name)
            show(self._parts[name], is_shown=field is not None)
            if field is None:
                continue
            self._own[name] = field.own
            put(widget, value=field.text)
            put(self.problems[name], value=_below(field))

    def _set(self, name: str, text: str) -> None:
        # The recipe's own value is no choice.
        wanted = "" if text.strip() == self._own.get(name) else text.strip()
        self._change(lambda choices: with_field(choices, name, wanted))


def _below(field: FormField) -> str:
    """Return what is wrong with a field, or what follows from it."""
    if field.problem is not None:
        return pieces.icon("✕", "bad") + escape(str(field.problem))
    notes = [pieces.icon("△", "warn") + escape(str(note)) for note in field.notes]
    return "<br>".join(filter(None, (pieces.second(field.told), *notes)))
