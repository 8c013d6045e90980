"""Piece manifests: reads and hashes a folder or file to send, and checks received manifests."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from jupyter_mntrain.launch.files.names import inside
from jupyter_mntrain.launch.files.records import LargeFile, PieceManifest
from jupyter_mntrain.launch.project.tree import check_paths, sha256_of
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.file_name import is_of_macos

MOST_FILES = tunables.count("files.files")
PIECE_BYTES = 4 * 2**20
"""Large files are sent in pieces of this size (twice as much from 64 GiB on), at most half of
limits.body_bytes. Smaller ones, down to LEAST_PIECE_BYTES, for what would not have
enough_pieces: a push that is broken off loses the pieces that are on their way. Each piece
takes both sides 3 ms of a core besides its bytes (measured)."""
LEAST_PIECE_BYTES = 2**20
ENOUGH_PIECES = 16
HASHING_THREADS = 4
"""Threads that read and hash what is sent: one hashes 1 GiB in a second, slower than a fast
disk."""
LARGE_BYTES = 64 << 30
"""From here on pieces are twice as large, so that their list fits into one request."""


def piece_bytes_of(size: int) -> int:
    """Return the piece size for a total size: small pieces for small files.

    A node passes on only whole pieces, so the time of one piece per node is lost at the end.
    """
    if size >= LARGE_BYTES:
        return 2 * PIECE_BYTES
    piece_bytes = PIECE_BYTES
    while piece_bytes > LEAST_PIECE_BYTES and size < ENOUGH_PIECES * piece_bytes:
        piece_bytes //= 2
    return piece_bytes


def list_files(path: Path, root: Path | None = None) -> tuple[LargeFile, ...]:
    """List the files of a folder, or a single file. Links to files are followed.

    Args:
        root: what they must not lead out of.

    Raises:
        SpecError: there is nothing, or too much.
        RefusedError: a link leads out of the root.
    """
    if path.is_file():
        return (_file(path, "", root),)
    if not path.is_dir():
        raise SpecError(f"{path}: there is no such file or folder", kind=Kind.NO_FILE)
    found: list[LargeFile] = []
    for one in _walk(path):
        if len(found) == MOST_FILES:
            raise SpecError(
                f"{path} has more than {MOST_FILES} files",
                fix="pack them into archives, or raise the setting files.files",
            )
        found.append(_file(one, one.relative_to(path).as_posix(), root))
    if not found:
        raise SpecError(f"{path} has no files", kind=Kind.NO_FILE)
    return tuple(sorted(found, key=lambda one: one.path))


def read_manifest(
    path: Path,
    root: Path | None = None,
    *,
    on_bytes: Callable[[int], object] = bool,
    files: tuple[LargeFile, ...] | None = None,
    piece_bytes: int = 0,
) -> PieceManifest:
    """Read a folder or file and hash its pieces; takes seconds per GiB.

    Args:
        on_bytes: told how many bytes are read so far.
        files: what :func:`list_files` has found.
        piece_bytes: default: by its size.

    Raises:
        SpecError, RefusedError: as for :func:`list_files`; or a file cannot be read.
    """
    files = files or list_files(path, root)
    size = sum(one.size_bytes for one in files)
    piece_bytes = piece_bytes or piece_bytes_of(size)
    blank = PieceManifest(files=files, piece_bytes=piece_bytes, pieces=())
    reader = PieceFiles(path, blank, root)
    pieces = []
    with ThreadPoolExecutor(HASHING_THREADS, "mntrain hashing") as threads:
        count = -(-size // piece_bytes)
        for piece, digest in enumerate(
            # One that changes meanwhile is found when it is sent, and keeps no other one back.
            threads.map(lambda one: sha256_of(reader.read(one, pads=True)), range(count))
        ):
            pieces.append(digest)
            on_bytes(min(size, (piece + 1) * piece_bytes))
    return msgspec.structs.replace(blank, pieces=tuple(pieces))


def check_manifest(manifest: PieceManifest, most_files: int = MOST_FILES) -> None:
    """Refuse a manifest that cannot be written below a folder as it is.

    Raises:
        SpecError: naming the path.
    """
    count = -(-manifest.size_bytes // manifest.piece_bytes)
    if not manifest.files or len(manifest.files) > most_files or count != len(manifest.pieces):
        raise SpecError("the list of what is sent is not valid")
    if manifest.is_folder:
        check_paths([one.path for one in manifest.files])


def transfer_of(root: str, name: str, manifest: PieceManifest) -> str:
    """Return the id of a transfer: the same for the same content under the same name."""
    digest = hashlib.sha256(f"{root}:{name}\n".encode())
    digest.update(msgspec.json.encode(manifest))
    return digest.hexdigest()


class PieceFiles:
    """Reads and writes pieces of a folder's files, or of a single file. Safe from any thread.

    Args:
        root: what no link may lead out of; ``None`` = anything that this user may read.
    """

    def __init__(self, base: Path, manifest: PieceManifest, root: Path | None) -> None:
        self._base, self._manifest, self._root = str(base), manifest, root
        self._begins: list[int] = []
        begin = 0
        for one in manifest.files:
            self._begins.append(begin)
            begin += one.size_bytes

    def read(self, piece: int, *, pads: bool = False) -> bytes:
        """Read a piece as it is now.

        Args:
            pads: with zeros, where a file is shorter than it was, or gone.

        Raises:
            SpecError: a file is shorter than it was, or cannot be read.
        """
        parts = []
        for path, offset, size in self._spans(piece):
            try:
                with self._opened(path, os.O_RDONLY) as file:
                    part = os.pread(file, size, offset)
            except OSError as error:
                if not (pads and isinstance(error, FileNotFoundError)):
                    raise SpecError(f"{path} cannot be read: {error.strerror}") from None
                part = b""
            if pads:
                part = part.ljust(size, b"\0")
            if len(part) != size:
                raise SpecError(
                    f"{path} changed while it was sent", fix="try again once nothing writes to it"
                )
            parts.append(part)
        return b"".join(parts)

    def write(self, piece: int, content: bytes | bytearray) -> None:
        """Write a piece into existing files.

        Raises:
            RefusedError: the disk is full, or fails.
        """
        done = 0
        for path, offset, size in self._spans(piece):
            try:
                with self._opened(path, os.O_WRONLY) as file:
                    part = memoryview(content)[done : done + size]
                    written = os.pwrite(file, part, offset)
                    # The disk begins at once: else all of it is still to be written at the end.
                    if sys.platform == "linux":  # a driver may be a Mac
                        os.posix_fadvise(file, offset, size, os.POSIX_FADV_DONTNEED)
                if written != size:
                    raise OSError(28, "No space left on device")
            except OSError as error:
                raise RefusedError(
                    f"{path} cannot be written: {error.strerror}",
                    kind=Kind.DISK_FULL,
                    fix="free space on its disk",
                ) from error
            done += size

    def _spans(self, piece: int) -> Iterator[tuple[str, int, int]]:
        """Yield the parts of files that make up a piece: path, offset and size."""
        folders: dict[str, str] = {}
        """Where they really are: a piece may have thousands of files in one."""
        begin = piece * self._manifest.piece_bytes
        end = begin + self._manifest.size_of(piece)
        index = bisect_right(self._begins, begin) - 1
        while begin < end:
            one = self._manifest.files[index]
            offset = begin - self._begins[index]
            size = min(one.size_bytes - offset, end - begin)
            if size > 0:
                path = f"{self._base}/{one.path}" if one.path else self._base
                yield self._real(path, folders), offset, size
                begin += size
            index += 1

    def _real(self, path: str, folders: dict[str, str]) -> str:
        """Resolve a path, which must lead below the root.

        Args:
            folders: the same of the folders of earlier ones.
        """
        if self._root is None:
            return path
        folder, name = os.path.split(path)
        if os.path.islink(path):  # noqa: PTH114 - a Path for each of 200,000 files takes seconds
            return str(inside(Path(path), self._root))
        if folder not in folders:
            folders[folder] = str(inside(Path(path), self._root).parent)
        return f"{folders[folder]}/{name}"

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        """Open a file descriptor; with a root, refuse a file that has become a link."""
        if self._root is not None:
            flags |= os.O_NOFOLLOW
        file = os.open(path, flags | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files, except those that only macOS uses.

    Links to folders are not followed: they may lead in a circle.
    """
    for parent, folders, names in os.walk(folder, onerror=_raise):
        linked = next((one for one in folders if (Path(parent) / one).is_symlink()), None)
        if linked is not None:
            raise SpecError(
                f"{Path(parent) / linked} is a symbolic link to a folder",
                fix="replace it by the folder itself",
            )
        folders[:] = [one for one in folders if one != ".mntrain"]
        yield from (Path(parent) / name for name in names if not is_of_macos(name))


def _raise(error: OSError) -> None:
    raise SpecError(f"{error.filename} cannot be read: {error.strerror}") from None


def _file(path: Path, name: str, root: Path | None) -> LargeFile:
    try:
        told = (inside(path, root) if root else path).stat()
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(told.st_mode):
        raise SpecError(f"{path} is not a file", fix="move it out of the folder")
    return LargeFile(
        path=name, size_bytes=told.st_size, is_executable=bool(told.st_mode & stat.S_IXUSR)
    )
