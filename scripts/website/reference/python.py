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
        if name.startswith("__"):
            continue
        # The class where it is defined: msgspec and lazy loading hide it from the package.
        defined = getattr(jupyter_mntrain, name)
        path = f"{defined.__module__}.{defined.__qualname__}"
        lines += [f"## {name}", "", f"`from jupyter_mntrain import {name}`", ""]
        lines += ["```{eval-rst}", f".. autoclass:: {path}", "   :members:", "```", ""]
    return "\n".join(lines)
