"""Project files: writes a job's project into its working directory, and checks all contents.

Done by the supervisor: copying and hashing must not hold up the agent.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.launch.project.tree import BLOBS, TreeFile, blob_path, read_tree
from jupyter_mntrain.model.errors import SpecError

_BLOCK_BYTES = 1 << 20
_PLAIN, _EXECUTABLE = 0o600, 0o700


def write_project(attempt: Path, sha256: str) -> None:
    """Write a tree's files and folders. Existing files stay: they are the job's own small files.

    Args:
        attempt: its directory, ``jobs/ID/attempt-N``.
        sha256: of the tree.

    Raises:
        OSError: a file is missing or damaged, or cannot be written.
    """
    blobs, work = attempt.parents[2] / BLOBS, attempt / "work"
    try:
        tree = read_tree(blob_path(blobs, sha256).read_bytes())
    except SpecError as error:
        raise OSError(error.cause) from error
    for folder in tree.folders:
        (work / folder).mkdir(mode=_EXECUTABLE, parents=True, exist_ok=True)
    for one in tree.files:
        target = work / one.path
        target.parent.mkdir(mode=_EXECUTABLE, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            _write(blob_path(blobs, one.sha256), target, one)


def _write(source: Path, target: Path, one: TreeFile) -> None:
    mode = _EXECUTABLE if one.is_executable else _PLAIN
    # O_EXCL: nothing is written through a link.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    digest = hashlib.sha256()
    with open(descriptor, "wb") as written, source.open("rb") as read:  # noqa: PTH123 - its mode
        while block := read.read(_BLOCK_BYTES):
            digest.update(block)
            written.write(block)
    if digest.hexdigest() != one.sha256:
        source.unlink(missing_ok=True)
        # Deleted, so that the next launch sends it again.
        raise OSError(f"the stored content of {one.path} was damaged, and is deleted: launch again")
