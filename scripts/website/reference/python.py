"""Python: the public names of the package, by their docstrings."""

from __future__ import annotations

import jupyter_mntrain


def page() -> str:
    lines = [
        "# Python API",
        "",
        (
            "All public names are in `jupyter_mntrain`; everything else may change in any release. "
            "[Commands](../commands.md#in-scripts) has an example."
        ),
        "",
    ]
    for name in jupyter_mntrain.__all__:
        if not name.startswith("__"):
            lines += [f"## {name}", "", "```{eval-rst}"]
            lines += [f".. autoclass:: jupyter_mntrain.{name}", "   :members:", "```", ""]
    return "\n".join(lines)
