"""Panel row: the widgets of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets
import msgspec

from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.widgets import box, html, put, put_lines
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.node_row import FormRow, RowCheck

Change = Callable[[Callable[[Choices], Choices]], None]
"""Applies a change to the choices, in the panel's own thread."""

Listen = Callable[[Any, Callable[[Any], None]], None]
"""Calls back with a widget's value when a person sets it."""

AUTO = ""
"""Value of the choice "chosen at launch"."""


class NodeRow:
    """The widgets of a row, created once and then updated.

    Args:
        name: of the node.
        listen: calls back when a person sets a widget's value.
        change: applies a change to the choices.
    """

    def __init__(self, name: str, listen: Listen, change: Change) -> None:
        self._name = name
        name = shown_name(name)
        self._change = change
        self._checks_shown: tuple[RowCheck, ...] = ()
        self.use = ipywidgets.Checkbox(description=name, indent=False)
        self.state = html()
        self.gpus = ipywidgets.Combobox(
            description=f"GPUs or processes of {name}",
            continuous_update=False,
            layout={"width": "104px"},
        )
        self.gpu_hint = html()
        self.interface = ipywidgets.Dropdown(description=f"Interface of {name}")
        self.head = ipywidgets.RadioButtons(
            options=["head"], value=None, description=f"Head: {name}"
        )
        self.checks = ipywidgets.VBox()
        self.checks.add_class("mnt-checks")
        self.root = box(
            "mnt-row",
            box(
                "mnt-cells",
                self.use,
                self.state,
                box("mnt-gpus mnt-quiet", self.gpus, self.gpu_hint),
                box("mnt-iface mnt-quiet", self.interface),
                box("mnt-quiet", self.head),
            ),
            self.checks,
        )
        listen(self.use, lambda value: self._choose(is_used=value))
        listen(self.gpus, lambda value: self._choose(gpus=value.strip()))
        listen(self.interface, lambda value: self._choose(interface=value or None))
        listen(self.head, self._make_head)

    def show(self, row: FormRow) -> None:
        can = row.can_be_used
        put(self.use, value=row.is_used, disabled=not can and not row.is_used)
        put(self.state, value=pieces.state(row))
        put(self.gpus, options=row.gpu_options, value=row.gpus, disabled=not row.takes_part)
        put(self.gpus, placeholder=row.gpu_default)
        put(self.gpu_hint, value=pieces.second(row.gpu_hint))
        # A drop-down cannot have the value None.
        interfaces = tuple((label, name or AUTO) for label, name in row.interfaces)
        put(self.interface, options=interfaces, value=row.interface or AUTO)
        put(self.interface, disabled=not row.takes_part)
        put(self.head, value="head" if row.is_head else None, disabled=not row.takes_part)
        if row.checks != self._checks_shown:
            self._checks_shown = row.checks
            put_lines(self.checks, [check_line(check, self._change) for check in row.checks])

    def _choose(self, **fields: Any) -> None:
        self._change(lambda choices: choices.with_node(self._name, **fields))

    def _make_head(self, value: str | None) -> None:
        if value is not None:
            self._change(lambda choices: msgspec.structs.replace(choices, head=self._name))


def check_line(check: RowCheck, change: Change) -> ipywidgets.Widget:
    """Return a line with a finding and a button that applies its fix."""
    line = box("mnt-check", html(pieces.check(check)))
    fix = check.fix
    if fix is not None:
        button = ipywidgets.Button(description=fix.label)
        button.on_click(lambda _: change(lambda _: fix.choices))
        line.children = (*line.children, button)
    return line
