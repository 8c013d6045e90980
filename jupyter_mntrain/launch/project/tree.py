"""Tree: the files of a project by the hashes of their contents. Pure.

A job's spec holds only the hash of its tree. Trees and contents are blobs: stored on every node by
their SHA-256, and sent only to nodes that lack them. A tree has no symbolic links: nothing that is
written from it can leave its directory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.text.file_name import is_long
from jupyter_mntrain.model.text.foreign import is_unicode

# Files are sent in parts of this size, and as many at a time to each node.
PART_BYTES = 4 * 2**20
"""Largest part of a file that is sent at once."""

MOST_FILES = tunables.count("projects.files")

MOST_LEFT_OUT = 200
"""Names of ignored files that nodes are told."""

SHA256 = r"[0-9a-f]{64}"
Sha256 = Annotated[str, Meta(pattern=f"^{SHA256}$")]

BLOBS = "blobs"
"""Directory next to that of a node's jobs."""


class TreeFile(Record, frozen=True):
    """One file: its path from the tree's root, with ``/``."""

    path: str
    sha256: Sha256
    size_bytes: Annotated[int, Meta(ge=0)]
    is_executable: bool = False


class Tree(Record, frozen=True):
    """All files, sorted by path, and the folders without any.

    Args:
        left_out: paths that were ignored, for who misses them; of a folder, only its own.
    """

    files: tuple[TreeFile, ...]
    folders: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Whether a path or one of its parent folders was ignored."""
        return not {path, *map(str, PurePosixPath(path).parents)}.isdisjoint(self.left_out)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)

    @property
    def blobs(self) -> dict[str, int]:
        """Return the size of every content, by its hash."""
        return {one.sha256: one.size_bytes for one in self.files}


def blob_path(blobs: Path, sha256: str) -> Path:
    """Return the path at which a node stores a content."""
    return blobs / sha256[:2] / sha256


def encode_tree(tree: Tree) -> bytes:
    """Encode a tree, identically for the same files."""
    files = tuple(sorted(tree.files, key=lambda one: one.path))
    told = Tree(files=files, folders=tuple(sorted(tree.folders)), left_out=tree.left_out)
    return msgspec.json.encode(told)


def sha256_of(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()


def read_tree(content: bytes) -> Tree:
    """Decode a received tree, and check that it can be written below any directory.

    Raises:
        SpecError: it is not a tree; or a path leaves it, stands twice or cannot be a file's name.
    """
    try:
        tree = msgspec.json.decode(content, type=Tree)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(f"the list of its files is not valid: {error}") from None
    check_tree(tree)
    return tree


def check_tree(tree: Tree) -> None:
    """Refuse a tree that cannot be written as it is.

    Raises:
        SpecError: naming the path.
    """
    count = len(tree.files) + len(tree.folders)
    if count > MOST_FILES:
        raise too_many_files(count)
    check_paths([one.path for one in tree.files], tree.folders)


def check_paths(paths: Sequence[str], folders: Sequence[str] = ()) -> None:
    """Refuse paths of files and empty folders that cannot all be written below one folder.

    Raises:
        SpecError: naming the path.
    """
    for path in (*paths, *folders):
        _check_path(path)
    taken: set[str] = set()
    for path in (*paths, *folders):
        if path in taken:
            raise _refusal(f"it lists {path!r} twice")
        taken.add(path)
    files, known = set(paths), set[str]()
    for path in taken:
        above = path
        while (above := above.rpartition("/")[0]) and above not in known:
            if above in files:
                raise _refusal(f"{above!r} is a file and the folder of {path!r}")
            known.add(above)


def too_many_files(count: int) -> SpecError:
    """Return the error for a project with more files than may be sent."""
    return SpecError(
        f"the project has {count} files or more; the limit is {MOST_FILES}",
        fix="leave out what the job does not need: a .mntrainignore next to it takes the patterns "
        "of .gitignore; the limit is the setting projects.files",
    )


_SPECIAL = frozenset({"", ".", ".."})
"""Parts that no plain path below a folder has."""


def _check_path(path: str) -> None:
    is_plain = not _SPECIAL.intersection(path.split("/"))
    if not is_plain or "\0" in path or not is_unicode(path):
        raise _refusal(f"{path!r} cannot be the path of a file in it")
    if is_long(path):
        raise _refusal(f"the path {path[:80]!r}… is too long")


def _refusal(why: str) -> SpecError:
    return SpecError(f"the project cannot be used: {why}", fix="rename or leave out that file")
