"""Node table of a panel: a heading, and a row per node."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import Change, Listen, NodeRow
from jupyter_mntrain.notebook.panel.widgets import box, html
from jupyter_mntrain.verbs.panel.node_row import FormRow

HEADINGS = ("node", "", "GPUs or processes", "interface for training", "")


class NodeTable:
    """Rows by node name; a row keeps its widgets as long as its node exists.

    Args:
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(self, listen: Listen, change: Change) -> None:
        self._listen = listen
        self._change = change
        self._headings = box(
            "mnt-head", box("mnt-cells", *(html(pieces.second(word)) for word in HEADINGS))
        )
        self.rows: dict[str, NodeRow] = {}
        self.root = ipywidgets.VBox()
        self.root.add_class("mnt-table")

    def show(self, rows: Sequence[FormRow]) -> None:
        names = [row.name for row in rows]
        if names != list(self.rows):
            self.rows = {
                name: self.rows.get(name) or NodeRow(name, self._listen, self._change)
                for name in names
            }
            self.root.children = (self._headings, *(row.root for row in self.rows.values()))
        for row in rows:
            self.rows[row.name].show(row)
