"""Missing file: explains why a rank did not find a file or a module. Only reads.

Ranks run in a copy of what was sent. Nothing can be put there by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from jupyter_mntrain.launch.project.own_imports import is_module
from jupyter_mntrain.launch.project.tree import BLOBS, Tree, blob_path, read_tree
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind

_NAMED = re.compile(r"No such file or directory: b?(['\"])(?P<path>.+?)\1")
_OF_PATH = re.compile(r"[./]")
_MODULE = re.compile(r"No module named '(?P<name>\w+)'")
MOST_FOLDERS = 100


def fix_of_missing(message: str, attempt: Path) -> str | None:
    """Return the fix for a file that was excluded or never sent; ``None`` if it is neither.

    Args:
        message: what Python, or a library, said of it.
        attempt: its directory, ``jobs/ID/attempt-N``.
    """
    try:
        command = json.loads((attempt / "command.json").read_bytes())
        folder, project = str(command["directory"]), command["project"]
        tree = _tree(attempt, project) if project else Tree(files=())
        path = _named(message, attempt / "work", command["argv"])
    except (OSError, ValueError, KeyError, SpecError):
        return None
    if folder != str(attempt / "work"):
        return None  # in a folder of the nodes
    if path is None or path.is_absolute() or ".." in path.parts:
        return None
    special = "left out" if tree.leaves_out(str(path)) else "unsent"
    return fix_of(Kind.NO_FILE, special, path=path)


def fix_of_missing_module(message: str, attempt: Path) -> str | None:
    """The fix for a module that is in the folder that the ranks run in, or in one of its folders,
    where Python does not look for a script of another folder; ``None`` if it is in none.
    """
    if (found := _MODULE.search(message)) is None:
        return None
    name = found["name"]
    try:
        folder = Path(json.loads((attempt / "command.json").read_bytes())["directory"])
        below = sorted(one for one in folder.iterdir() if one.is_dir() and one.name[:1] != ".")
        place = next((one for one in (folder, *below[:MOST_FOLDERS]) if is_module(one, name)), None)
    except (OSError, ValueError, KeyError):
        return None
    if place is None:
        return None
    return fix_of(Kind.NO_MODULE, "not on path", what=name, folder=place.relative_to(folder))


def _named(message: str, work: Path, argv: Sequence[str]) -> PurePosixPath | None:
    """Find the path in a message, as Python prints it, below the folder that the ranks run in, or
    as an argument of the job that does not exist.
    """
    if found := _NAMED.search(message):
        path = PurePosixPath(found["path"])
        return path.relative_to(work) if path.is_relative_to(work) else path
    if found := re.search(rf"{re.escape(str(work))}/([^'\"\s]+)", message):
        return PurePosixPath(found[1])
    for word in argv:
        # Hydra's are written key=path.
        given = word.rpartition("=")[2]
        path = PurePosixPath(given)
        if not given or given.startswith("-") or path.is_absolute() or (work / path).exists():
            continue
        before, after = (
            (r"(?<![\w./-])", r"(?![\w/-])") if _OF_PATH.search(given) else ("['\"]",) * 2
        )
        if re.search(f"{before}{re.escape(given)}{after}", message):
            return path
    return None


def _tree(attempt: Path, sha256: str) -> Tree:
    return read_tree(blob_path(attempt.parents[2] / BLOBS, sha256).read_bytes())
