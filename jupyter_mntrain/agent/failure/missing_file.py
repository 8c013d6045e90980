"""Missing file: what is known of one that a rank did not find. Only reads.

Ranks run in a copy of what was sent. Nothing can be put there by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

from jupyter_mntrain.launch.project.tree import BLOBS, Tree, blob_path, read_tree
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind

_NAMED = re.compile(r"No such file or directory: b?(['\"])(?P<path>.+?)\1")


def fix_of_missing(message: str, attempt: Path) -> str | None:
    """The fix for a file that was left out, or never sent; ``None`` if it is neither.

    Args:
        message: what Python said of it.
        attempt: its directory, ``jobs/ID/attempt-N``.
    """
    named = _NAMED.search(message)
    if named is None:
        return None
    try:
        command = json.loads((attempt / "command.json").read_bytes())
        folder, project = str(command["directory"]), command["project"]
        tree = _tree(attempt, project) if project else Tree(files=())
    except (OSError, ValueError, KeyError, SpecError):
        return None
    work, path = attempt / "work", PurePosixPath(named["path"])
    if folder != str(work):
        return None  # in a folder of the nodes
    if path.is_relative_to(work):
        path = path.relative_to(work)
    if path.is_absolute() or ".." in path.parts:
        return None
    special = "left out" if tree.leaves_out(str(path)) else "unsent"
    return fix_of(Kind.NO_FILE, special, path=path)


def _tree(attempt: Path, sha256: str) -> Tree:
    return read_tree(blob_path(attempt.parents[2] / BLOBS, sha256).read_bytes())
