"""Place part of a panel: fields for files, folder and interpreter, folded until needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets

from jupyter_mntrain.notebook.panel.field_bar import PLACE_LABELS, FieldBar
from jupyter_mntrain.notebook.panel.row import Change, Listen
from jupyter_mntrain.notebook.panel.widgets import box, put, show
from jupyter_mntrain.verbs.panel.fields import FormField

TITLE = "Files and interpreter"


class PlacePart:
    """A button that shows and hides the fields; fields that are in use stay visible.

    Args:
        do: runs a click's task in the panel's own thread.
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(
        self, do: Callable[[Callable[[], None]], None], listen: Listen, change: Change
    ) -> None:
        self._is_open = False
        self.toggle = ipywidgets.Button(tooltip="Which files, folder and interpreter it runs in")
        self.bar = FieldBar(listen, change, PLACE_LABELS)
        self.root = box("mnt-plain", box("mnt-settings mnt-bar", self.toggle), self.bar.root)
        self.toggle.on_click(lambda _: do(self._toggle))

    def show(self, fields: Sequence[FormField]) -> None:
        self.bar.show(fields)
        shown = [one for one in fields if one.name in PLACE_LABELS]
        is_filled = any(one.chosen or one.problem or one.told for one in shown)
        is_open = self._is_open or is_filled
        put(self.toggle, description=f"{'▾' if is_open else '▸'} {TITLE}")
        show(self.bar.root, is_shown=is_open)

    def _toggle(self) -> None:
        self._is_open = not self._is_open
