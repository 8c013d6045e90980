"""Settings table: every setting of a run, its value, and where it was set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.show.tables._plain import plain_table

AUTO = "auto"


def settings_table(settings: Iterable[Setting]) -> RenderableType:
    """Return one row per setting, bold if chosen, and below why some have no value yet."""
    settings = tuple(settings)
    table = plain_table("setting", "value", "from")
    for one in settings:
        style = "" if one.origin in ("default", "auto") else "bold"
        table.add_row(
            Text(one.name, style=style), Text(setting_words(one), style=style), Text(one.origin)
        )
    if not any(setting_words(one) == AUTO for one in settings):
        return table
    return Group(
        table, Text(f"{AUTO} without a value: decided on the nodes when the job starts", "dim")
    )


def setting_words(one: Setting) -> str:
    """Return a setting's value, and what is used instead if that differs."""
    if one.value is None and one.chosen is None:
        return AUTO if one.origin == "auto" else "not set"
    if one.value is None or one.chosen is None:
        return value_words(one.in_effect)
    return f"{value_words(one.value)}: {value_words(one.chosen)}"


def value_words(value: Any) -> str:
    """Format a value as in a recipe; text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
