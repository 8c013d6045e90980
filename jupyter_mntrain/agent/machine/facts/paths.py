"""Paths: what is there for the agent's user, on which file system, with how much room."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_mntrain.agent.machine.facts.contents import contents
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import AskedPath, FoundPath, PathKind, PathUse

WRITTEN: Final[tuple[PathUse, ...]] = ("jobs", "checkpoints", "temporary files", "output")

TRIED_BYTES: Final = 65536
"""Written to see whether a quota, or a file system without inodes, lets it be."""

_NO_TRIAL: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
"""File systems that make no files without a name, as NFS: nothing is known."""

COMPARED: Final[tuple[PathUse, ...]] = ("model", "data", "chat template", "script")
"""What has to be the same on all nodes."""


def find_path(asked: AskedPath, types: Mapping[str, str]) -> FoundPath:
    """Look at a path. Blocks if its file system does.

    Args:
        types: of file systems, by mount point.
    """
    try:
        path = place_of(asked.path)
        real = path.resolve()
        kind = "unreadable" if str(path).startswith("~") else _kind(path)  # nobody's home
    except MntrainError as error:  # a root that is not here
        return FoundPath(
            use=asked.use,
            path=asked.path,
            kind="unreadable",
            asked=asked.path,
            trouble=error.problem,
        )
    except (OSError, RuntimeError):  # a loop of links, a name that is too long
        return FoundPath(use=asked.use, path=asked.path, kind="unreadable", asked=asked.path)
    there = next((one for one in (real, *real.parents) if one.exists()), real)
    free = total = files = None
    is_known, is_read_only = True, False
    try:
        found = os.statvfs(there)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        files = found.f_favail if found.f_files else None
        is_read_only = bool(found.f_flag & os.ST_RDONLY)
    except OSError:
        is_known = False
    is_compared = asked.is_compared or asked.use in COMPARED
    is_writable = is_known and not is_read_only and os.access(there, os.W_OK)
    return FoundPath(
        use=asked.use,
        path=str(path),
        kind=kind,
        real_path=str(real) if kind in ("folder", "file") else "",
        is_writable=is_writable,
        free_bytes=free,
        total_bytes=total,
        free_files=files,
        is_read_only=is_read_only,
        refused=refused(there) if is_writable and asked.use in WRITTEN else "",
        file_system=_type_of(there, types),
        asked=asked.path,
        files=contents(real) if is_compared and kind in ("folder", "file") else {},
        trouble=_unusable(real, asked) if kind in ("folder", "file") else None,
    )


def _unusable(real: Path, asked: AskedPath) -> Problem | None:
    """Why this node's trainer would refuse it."""
    if asked.use not in ("model", "tokenizer"):
        return None
    # An agent at rest has not loaded recipes.
    from jupyter_mntrain.recipe.families.directories import (
        lacking_tokenizer,
        lacking_weights,
        refuse_directory,
    )

    try:
        if asked.use == "tokenizer":  # of an older driver it is the file itself
            names = [one.name for one in real.iterdir()] if real.is_dir() else None
            lacking = None if names is None else lacking_tokenizer(names, asked.path)
        else:
            refuse_directory(real, asked.path)
            lacking = lacking_weights(real, asked.path)
    except MntrainError as error:
        return error.problem
    return lacking.problem if lacking else None


def refused(folder: Path) -> str:
    """Why nothing more can be written to a folder, by the name of the error; empty if it can, or
    if that cannot be tried. The file that tries it has no name, and is gone when it is closed.
    """
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not folder.is_dir():
        return ""
    try:
        file = os.open(folder, flag | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(file, 0, TRIED_BYTES)
        finally:
            os.close(file)
    except OSError as error:
        number = error.errno or 0
        return "" if number in _NO_TRIAL else errno.errorcode.get(number, str(number))
    return ""


def mounts(proc: Path) -> dict[str, str]:
    """Types of file systems by mount point; empty if the kernel does not say."""
    try:
        lines = (proc / "self" / "mounts").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    # A space in a mount point is written \040. What was mounted last hides the others.
    return {one[1].replace("\\040", " "): one[2] for one in words if len(one) > 2}


def _type_of(path: Path, types: Mapping[str, str]) -> str:
    return next((types[str(one)] for one in (path, *path.parents) if str(one) in types), "")


def _kind(path: Path) -> PathKind:
    if path.is_dir():
        return "folder" if os.access(path, os.R_OK | os.X_OK) else "unreadable"
    if path.exists():
        return "file" if os.access(path, os.R_OK) else "unreadable"
    return "missing"
