"""Widget helpers: create widgets, and update only what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

from jupyter_mntrain.model.text.foreign import shown


def box(classes: str, *children: ipywidgets.Widget) -> ipywidgets.Box:
    """Return a plain box; the style sheet lays it out."""
    made = ipywidgets.Box(children=children)
    made.layout.display = None
    made.layout.flex_flow = None
    for one in classes.split():
        made.add_class(one)
    return made


def html(value: str = "") -> ipywidgets.HTML:
    return ipywidgets.HTML(value=value)


def put(widget: ipywidgets.Widget, **traits: Any) -> None:
    """Set only the traits that differ: each assignment sends a message to every page.

    A drop-down's options go before its value: new ones alone select the first. Foreign text in them
    is made safe to show.
    """
    for name, given in traits.items():
        value = safe(given)
        if getattr(widget, name) != value:
            setattr(widget, name, value)


def safe(value: Any) -> Any:
    """Return a trait with all text safe to display; options are tuples of texts or pairs."""
    if isinstance(value, str):
        return shown(value)
    return tuple(map(safe, value)) if isinstance(value, tuple) else value


def show(widget: ipywidgets.Widget, *, is_shown: bool) -> None:
    put(widget.layout, display=None if is_shown else "none")


BLOCKED = "mnt-blocked"
"""Class of a button that does nothing now. The page makes it ``aria-disabled``."""


def block(button: ipywidgets.Button, *, is_blocked: bool) -> None:
    """Block or unblock a button. Unlike a disabled one, it keeps the focus."""
    if blocked(button) != is_blocked:
        (button.add_class if is_blocked else button.remove_class)(BLOCKED)


def blocked(button: ipywidgets.Button) -> bool:
    return BLOCKED in button._dom_classes  # noqa: SLF001 - ipywidgets has no other way to ask


def put_lines(container: ipywidgets.Box, lines: Sequence[ipywidgets.Box]) -> None:
    """Replace the lines and close the old ones, so that kernel and pages free them."""
    old, container.children = container.children, tuple(lines)
    for line in old:
        for widget in (*line.children, line):
            # A widget does not close its layout and style models.
            for own in (widget, widget.layout, getattr(widget, "style", None)):
                if own is not None:
                    own.close()
