"""Records of large files: manifests, transfers, and what a node stores."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jupyter_mntrain.launch.project.tree import Sha256
from jupyter_mntrain.model._record import Record

LARGEST_PIECE_BYTES = 8 << 20
"""As much as an agent takes in one request."""


MOST_PULLED = 500_000
"""Files of a job that come home at once. Their list is an answer, and no request: of so many it has
40 MB."""


class LargeFile(Record, frozen=True):
    """One file: its path from the folder that is sent, with ``/``; empty for a single file."""

    path: str
    size_bytes: Annotated[int, Meta(ge=0)]
    is_executable: bool = False


class PieceManifest(Record, frozen=True):
    """The content of a transfer: its files in sequence, split into pieces that are verified by
    hash.

    Args:
        files: sorted by path; a single one with an empty path is not a folder.
        pieces: SHA-256 of each, in order; all but the last have ``piece_bytes``.
    """

    files: tuple[LargeFile, ...]
    piece_bytes: Annotated[int, Meta(ge=1, le=LARGEST_PIECE_BYTES)]
    pieces: tuple[Sha256, ...]

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)

    @property
    def is_folder(self) -> bool:
        return [one.path for one in self.files] != [""]

    def size_of(self, piece: int) -> int:
        """Return the size of a piece in bytes."""
        return min(self.piece_bytes, self.size_bytes - piece * self.piece_bytes)


class JobFiles(Record, frozen=True):
    """The files that a job wrote on a node, in its folder, without those that were sent there.

    Args:
        path: of that folder.
        files: sorted by path; not all of them if there are more than the setting files.files.
        count: of all.
        left_out: links and other things that are no files: what each is, by its path.
    """

    path: str
    files: tuple[LargeFile, ...] = ()
    count: int = 0
    size_bytes: int = 0
    left_out: dict[str, str] = {}


class WantedFiles(Record, frozen=True):
    """Files of a job that a driver is about to fetch from a node.

    Args:
        path: a file or folder; empty for all.
        without: files of it that come from another node.
    """

    path: str = ""
    without: tuple[str, ...] = ()

    def includes(self, path: str) -> bool:
        """Whether a file is the wanted one or in the wanted folder."""
        return not self.path or path == self.path or path.startswith(f"{self.path}/")


class Hashing(Record, frozen=True):
    """The progress of a node that hashes what it has under a name.

    Args:
        manifest: the result; ``None`` until everything is read.
    """

    done_bytes: int
    total_bytes: int
    manifest: PieceManifest | None = None


class Deposit(Record, frozen=True):
    """A transfer to a node that a driver starts or resumes.

    Args:
        nodes: ids of the nodes that may fetch pieces from this one.
    """

    root: str
    name: str
    manifest: PieceManifest
    nodes: tuple[str, ...] = ()


class TransferState(Record, frozen=True):
    """The state of a transfer on a node.

    Args:
        held: ranges of pieces, from the first up to the last, which is not included.
        is_checking: it still reads what it has; ask again.
        is_done: all of it is in its place.
        checked_bytes: how far it is with that.
    """

    transfer: str
    held: tuple[tuple[int, int], ...] = ()
    is_checking: bool = False
    is_done: bool = False
    checked_bytes: int = 0

    @property
    def pieces(self) -> set[int]:
        return {piece for begin, end in self.held for piece in range(begin, end)}


class PieceSource(Record, frozen=True):
    """The node to fetch a piece from."""

    node: str
    node_id: str
    addresses: tuple[str, ...]


class HeldThing(Record, frozen=True):
    """A large file or folder that is stored on a node.

    Args:
        what: ``models:NAME``; ``blobs``; ``incomplete models:…``; ``checkpoints of RUN``.
        used_s: Unix time at which it was read or written last; ``None`` if that is unknown.
    """

    what: str
    path: str
    size_bytes: int
    used_s: float | None = None


class NodeSpace(Record, frozen=True):
    """The large files and folders that are stored on a node, and the space they take.

    Args:
        roots: path by name.
        free_bytes: of the disk of each root.
    """

    roots: dict[str, str]
    free_bytes: dict[str, int]
    things: tuple[HeldThing, ...]


class CleanRequest(Record, frozen=True):
    """Request to delete files that no job uses.

    Args:
        names: ``models:NAME`` to delete, too.
        is_trial: only say what would go.
    """

    names: tuple[str, ...] = ()
    is_trial: bool = True


class Cleaned(Record, frozen=True):
    """The files that were deleted, or would be.

    Args:
        kept: what was asked for and stays: why, by name.
    """

    things: tuple[HeldThing, ...]
    kept: dict[str, str] = {}
