"""Page: builds the JupyterLab extension for a wheel, from the packages that a build needs alone."""

from __future__ import annotations

import subprocess


def build(target_name: str, version: str, path: str) -> None:  # noqa: ARG001
    """Build it in ``path``; hatch-jupyter-builder's own builder would install the tools, too."""
    for words in (["workspaces", "focus"], ["build:prod"]):
        subprocess.run(["jlpm", *words], cwd=path, check=True)
