"""Workplace: whether this node has what a job runs in: its folder."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind


def refuse_no_folder(path: Path) -> None:
    """Refuse a folder that the agent's user cannot run in.

    Raises:
        RefusedError: it does not exist, or may not be entered.
    """
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
    elif not os.access(path, os.R_OK | os.X_OK):
        what = "may not be entered by the agent's user"
    else:
        return
    raise RefusedError(
        f"--workdir {path}: {what}",
        kind=Kind.NO_FILE,
        fix="mount it, or correct the path; or send the files: --project DIR",
    )
