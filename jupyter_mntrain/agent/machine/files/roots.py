"""Roots: the only folders of this machine in which others may read and write large files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_mntrain.launch.files.large_places import told_roots
from jupyter_mntrain.launch.files.names import (
    ROOTS,
    LargeName,
    checked_large_name,
    inside,
    parse_root,
)
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import private_directory


class LargeRoots:
    """Folders by name: those that the node's owner has named, and the default ones.

    Args:
        state: directory of the node, where the usual ones are.
        named: like ``models=/data/models``.
    """

    def __init__(self, state: Path, named: Iterable[str] = ()) -> None:
        self._usual = {name: state / "files" / name for name in ROOTS}
        self.folders: Mapping[str, Path] = self._usual | dict(map(parse_root, named))

    def base(self, root: str) -> Path:
        """Return a root's folder, and make it if it is a default one.

        Raises:
            SpecError: there is no such root.
            RefusedError: its folder is not there.
        """
        folder = self.folders.get(root)
        if folder is None:
            raise SpecError(
                f"this node has no root {root!r}, only {', '.join(self.folders)}",
                fix=f"start its agent with --root {root}=PATH",
            )
        if folder == self._usual.get(root):
            private_directory(folder)
        if not folder.is_dir():
            raise RefusedError(
                f"the folder {folder} of root {root!r} is not there",
                kind=Kind.NO_FILE,
                fix="mount or create it, or start the agent with another --root",
            )
        return folder

    def path(self, name: LargeName) -> Path:
        """Return the path of something with this name on this node, whether or not it exists.

        Raises:
            SpecError: it is no name, or of no root.
            RefusedError: a symbolic link leads out of the root.
        """
        checked_large_name(*name)
        base = self.base(name.root)
        path = base / name.name
        inside(path, base)
        return path

    def existing(self, name: LargeName) -> Path:
        """Like :meth:`path`, but it must exist.

        Raises:
            RefusedError: also if it is not.
        """
        path = self.path(name)
        if not path.exists():
            raise RefusedError(
                f"has no {name} ({path})", kind=Kind.NO_FILE, fix="mntrain du lists what is where"
            )
        return path


def roots_told_to_jobs(state: Path, named: Iterable[str]) -> LargeRoots:
    """Return an agent's roots for the environment of its jobs."""
    roots = LargeRoots(state, named)
    os.environ.update(told_roots(roots.folders))
    return roots
