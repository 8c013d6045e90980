"""Settings: every timeout, interval and limit with its default and its reason."""

from __future__ import annotations

import itertools

from jupyter_mntrain.model import tunables
from scripts.website.reference.tables import cell, code, table


def page() -> str:
    lines = [
        "# All settings",
        "",
        (
            "[Settings](../configuration.md) says how to change one, and which program reads which "
            "section. `mntrain config` lists the values in effect."
        ),
        "",
    ]
    shipped = tunables.load({tunables.CONFIG_VARIABLE: "/dev/null"}).by_key.values()
    for section, found in itertools.groupby(shipped, key=lambda one: one.section):
        lines += [f"## {section}", ""]
        rows = [
            (code(one.key.partition(".")[2]), one.text, cell(one.reason).replace("$", "\\$"))
            for one in found
        ]
        lines += table(("setting", "default", "why"), rows)
    return "\n".join(lines)
