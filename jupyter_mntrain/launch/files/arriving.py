"""Arriving: collects the pieces of a transfer in a folder next to their destination.

A piece is written only if its hash is right, so a folder that appears is whole. What arrived stays
for the next time: its pieces are listed in a file, and read again before they count.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyter_mntrain.launch.files.manifest import PieceFiles
from jupyter_mntrain.launch.files.records import LargeFile, PieceManifest
from jupyter_mntrain.launch.project.tree import sha256_of
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_size

SPARE_BYTES = 512 * 2**20
"""A node takes no file that leaves less than this free on its disk."""

SYNCING_THREADS = 8
"""A disk writes what several ask for at once: of 200,000 small files each waits for it alone."""

PARTIAL = ".mntrain"
"""Folder for unfinished transfers, on the disk of their destination."""
_TREE, _LIST, NAME, _LOCK = "tree", "arrived", "name", "lock"


class Arriving:
    """A folder or file that is received piece by piece. Safe from any thread.

    Args:
        goal: where it will be; it must not exist.
        base: existing folder, on the same disk, whose ``.mntrain`` holds what came.
        is_shared: several of them fill one folder, each with its own files: what is there already
            is found by its content.
    """

    def __init__(
        self,
        goal: Path,
        base: Path,
        transfer: str,
        manifest: PieceManifest,
        *,
        is_shared: bool = False,
    ) -> None:
        self.goal, self.manifest = goal, manifest
        self.folder = base / PARTIAL / transfer[:32]
        self._base = base
        self._is_shared = is_shared
        self._tree = self.folder / _TREE
        self._pieces = PieceFiles(self._tree, manifest, self.folder)
        self._lock = threading.Lock()
        self.held: set[int] = set()

    @property
    def is_whole(self) -> bool:
        return len(self.held) == len(self.manifest.pieces)

    def prepare(
        self, about: str, on_bytes: Callable[[int], object] = bool, *, others_bytes: int = 0
    ) -> None:
        """Check free space, create the files, and verify the pieces that arrived earlier.

        Args:
            about: what it is, for people who find the folder.
            others_bytes: what others that fill the folder bring.

        Raises:
            RefusedError: the disk has no room, cannot be written, or takes two names for one.
        """
        try:
            holes = self._holes()
            listed = self._listed() | holes
            self._refuse_full(self._held_bytes(listed, holes) - others_bytes)
            made: dict[tuple[int, int], str] = {}
            folders: set[Path] = set()
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / NAME).write_text(about)
            for one in self.manifest.files:
                path = self._tree / one.path if one.path else self._tree
                if path.parent not in folders:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    folders.add(path.parent)
                mode = 0o755 if one.is_executable else 0o644
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
                descriptor = os.open(path, flags, mode)
                try:
                    told = os.fstat(descriptor)
                    same = made.setdefault((told.st_dev, told.st_ino), one.path)
                    if same != one.path:
                        raise _one_name(same, one.path)
                    os.ftruncate(descriptor, one.size_bytes)
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise RefusedError(
                f"{self.folder} cannot be written: {error.strerror}",
                kind=Kind.NO_PERMISSION,
                fix="let the user of the agent write there, or name another folder: --root",
            ) from error
        for number, piece in enumerate(sorted(listed)):
            try:
                if sha256_of(self._pieces.read(piece)) == self.manifest.pieces[piece]:
                    self.held.add(piece)
            except MntrainError:  # it comes again
                continue
            on_bytes(number * self.manifest.piece_bytes)

    def read(self, piece: int) -> bytes:
        return self._pieces.read(piece)

    def write(self, piece: int, content: bytes | bytearray) -> None:
        """Store a piece, unless it is already here.

        Raises:
            SpecError: it has another hash.
            RefusedError: it cannot be written.
        """
        if not 0 <= piece < len(self.manifest.pieces) or (
            sha256_of(content) != self.manifest.pieces[piece]
        ):
            raise SpecError(
                f"piece {piece} has another content than announced",
                fix="try again once nothing writes to what is sent",
            )
        if piece in self.held:
            return
        if content.count(0) < len(content):  # else it is a hole, as in the file that is made
            self._pieces.write(piece, content)
        with self._lock:
            with (self.folder / _LIST).open("a") as file:
                file.write(f"{piece}\n")
            self.held.add(piece)

    def finish(self) -> None:
        """Flush the content to disk, and move it to its destination.

        Raises:
            RefusedError: pieces are missing, or its place is taken meanwhile.
        """
        if self.goal.exists() or self.goal.is_symlink():
            raise taken(self.goal)
        self.sync()
        self.place()

    def sync(self) -> None:
        """Flush the received files to disk.

        Raises:
            RefusedError: pieces are missing, or the disk fails.
        """
        if not self.is_whole:
            raise RefusedError("pieces are still missing", fix="push it again: it resumes")
        try:
            with ThreadPoolExecutor(SYNCING_THREADS, "mntrain syncing") as threads:
                files, turns = self.manifest.files, range(SYNCING_THREADS)
                list(threads.map(self._sync, (files[one::SYNCING_THREADS] for one in turns)))
        except OSError as error:
            raise self._unwritable(error) from error

    def _sync(self, files: Sequence[LargeFile]) -> None:
        for one in files:
            path = f"{self._tree}/{one.path}" if one.path else str(self._tree)
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def place(self, path: str = "") -> None:
        """Move the flushed files to their destination.

        Args:
            path: only this file or folder of it.
        """
        try:
            self.goal.parent.mkdir(parents=True, exist_ok=True)
            (self._tree / path).rename(self.goal)
        except OSError as error:
            raise self._unwritable(error) from error
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # others may come there
            self.folder.parent.rmdir()

    def keep_only(self, paths: Collection[str]) -> None:
        """Delete files that an earlier transfer left in the folder."""
        for parent, _, names in os.walk(self._tree):
            folder = Path(parent).relative_to(self._tree).as_posix()
            for name in names:
                if (name if folder == "." else f"{folder}/{name}") not in paths:
                    (Path(parent) / name).unlink()

    def _unwritable(self, error: OSError) -> RefusedError:
        cause = f"{self.goal} cannot be written: {error.strerror}"
        return RefusedError(cause, kind=Kind.NO_PERMISSION)

    def _listed(self) -> set[int]:
        """Return the pieces that were noted as received earlier."""
        if self._is_shared:
            return set(range(len(self.manifest.pieces))) if self._tree.is_dir() else set()
        try:
            words = (self.folder / _LIST).read_text().split()
        except OSError:
            return set()
        last = len(self.manifest.pieces)
        return {int(one) for one in words if one.isdecimal() and int(one) < last}

    def _holes(self) -> set[int]:
        """Return the pieces of zeros only, which new files have already and which need
        not be sent.
        """
        count = len(self.manifest.pieces)
        sizes = {self.manifest.size_of(piece) for piece in (0, count - 1) if count}
        zeros = {sha256_of(bytes(size)) for size in sizes}
        return {piece for piece, digest in enumerate(self.manifest.pieces) if digest in zeros}

    def _held_bytes(self, listed: Collection[int], holes: Collection[int]) -> int:
        """Return the bytes that already have space on the disk."""
        if not self._is_shared:
            return len(listed) * self.manifest.piece_bytes
        paths = (self._tree / one.path for one in self.manifest.files)
        written = sum(one.stat().st_blocks * 512 for one in paths if one.is_file())
        return written + len(holes) * self.manifest.piece_bytes

    def _refuse_full(self, held_bytes: int) -> None:
        free = shutil.disk_usage(self._base).free
        needed = max(0, self.manifest.size_bytes - held_bytes)
        if needed + SPARE_BYTES > free:
            raise RefusedError(
                f"the disk of {self._base} has {rough_size(free)} free: too little for "
                f"{rough_size(needed)} and a reserve of {rough_size(SPARE_BYTES)}",
                kind=Kind.DISK_FULL,
                fix="free space there, or name another place; of a node, mntrain du says what lies "
                "on it, and mntrain gc deletes",
            )


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Fetch into a folder of an unfinished transfer as the only process; a killed one counts no
    more.

    Two would delete and move each other's files.

    Args:
        folder: :attr:`Arriving.folder`.
        what: is fetched, for people.

    Raises:
        RefusedError: another one does, or the folder cannot be made.
    """
    from filelock import FileLock, Timeout  # what fetches nothing needs no locks

    base = folder.parent.parent
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise RefusedError(
            f"{what} is being fetched into {base} by another command",
            kind=Kind.OUT_OF_TURN,
            fix="wait until that has ended, or fetch it into another folder",
        ) from None
    except OSError as error:
        raise RefusedError(
            f"{base} cannot be written: {error.strerror}",
            kind=Kind.NO_PERMISSION,
            fix="fetch it into a folder of yours: mntrain pull … PATH",
        ) from error
    except NotImplementedError:  # this disk has no locks
        pass
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):  # what has come stays
            if [one.name for one in folder.iterdir()] == [_LOCK]:
                shutil.rmtree(folder)
                folder.parent.rmdir()


def _one_name(first: str, other: str) -> RefusedError:
    return RefusedError(
        f"{first} and {other} are one name on this disk",
        fix="fetch each of them by its own name, or into a folder of another disk",
    )


def taken(goal: Path) -> RefusedError:
    """Return the error for a destination that has other content."""
    return RefusedError(
        f"{goal} already exists, with other content",
        fix="use another name: --to ROOT:NAME; or delete it first: mntrain gc ROOT:NAME --yes",
    )
