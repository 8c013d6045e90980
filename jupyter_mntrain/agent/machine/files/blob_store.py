"""Blob store: contents of project files on this node, by their SHA-256.

Bounded: what was used least recently goes first, and nothing that a job here needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.access.limits import TooManyError
from jupyter_mntrain.launch.files.arriving import SPARE_BYTES
from jupyter_mntrain.launch.files.records import HeldThing
from jupyter_mntrain.launch.project.tree import SHA256, Tree, blob_path, read_tree
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import PRIVATE, private_directory
from jupyter_mntrain.model.quantities import rough_size

STORE_BYTES = tunables.size("projects.store_bytes")
KEPT_S = 600.0
"""Files that came within this time are not deleted, whatever the limit: their job is on its way."""
PATIENCE_S = 600.0
"""An upload that nobody continues is deleted after this."""
MOST_UPLOADS = 256
"""Files that one member, and all members, may be sending to a node at once."""
MOST_UPLOADS_EACH = 64
"""Files that one member, and all members, may be sending to a node at once."""

UPLOADS = "uploads"
_SHA256 = re.compile(SHA256)


class UploadPart(NamedTuple):
    """A part of an upload.

    Args:
        who: sends it.
        key: of the upload.
        size_bytes: of the whole.
    """

    who: str
    key: str
    sha256: str
    offset: int
    size_bytes: int
    content: bytes


class BlobStore:
    """Files named by their SHA-256, in folders named by its first two digits. Safe from any thread.

    Args:
        directory: made when the first file comes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._bytes: int | None = None
        """Size of all contents; ``None`` = not known yet."""

    def path_of(self, sha256: str) -> Path:
        """Return the path at which a content is stored.

        Raises:
            SpecError: this is no hash.
        """
        if not _SHA256.fullmatch(sha256):
            raise SpecError(f"{sha256[:80]!r} is no SHA-256")
        return blob_path(self.directory, sha256)

    def missing(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """Return the contents that are not completely here. The others count as used now."""
        return tuple(sha256 for sha256, size in sizes.items() if not self._touch(sha256, size))

    def read(self, sha256: str, offset: int, limit: int) -> bytes:
        """Read a part of a content.

        Raises:
            RefusedError: it is not here.
        """
        try:
            with self.path_of(sha256).open("rb") as file:
                return os.pread(file.fileno(), limit, offset)
        except FileNotFoundError:
            raise RefusedError(
                "a file of the project is not here any more",
                kind=Kind.NO_FILE,
                fix="launch it from the project's folder again: --project DIR",
            ) from None

    def tree(self, sha256: str) -> Tree:
        """Return the tree with this hash, if it and all of its files are here.

        Raises:
            RefusedError: something is missing.
            SpecError: it is not a tree.
        """
        try:
            tree = read_tree(self.path_of(sha256).read_bytes())
        except FileNotFoundError:
            raise _lacking("the list of its files") from None
        missing = self.missing(tree.blobs)
        if missing:
            name = next(one.path for one in tree.files if one.sha256 in missing)
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise _lacking(f"{name}{more}")
        return tree

    def take(self, part: UploadPart, in_use: Collection[str]) -> None:
        """Store a part. After the last one, the whole is checked and kept. A repeated part changes
        nothing.

        Args:
            in_use: trees of jobs that run or wait here.

        Raises:
            SpecError: the content has another hash or size, or the part is out of turn.
            RefusedError: there is no room, or too many uploads are open.
        """
        _check(part)
        if self._touch(part.sha256, part.size_bytes):
            return
        with self._lock:
            path = self._upload_path(part)
            if part.offset == 0:
                self._clean_uploads()
                self._refuse_crowd(part, path)
                self._make_room(part.size_bytes, in_use)
            held = path.stat().st_size if path.exists() else -1
            if part.offset > max(0, held):
                raise _out_of_turn()
            if part.offset + len(part.content) > held:
                self._append(path, part)
            if part.offset + len(part.content) == part.size_bytes:
                self._finish(path, part)

    def clean(self, in_use: Collection[str], is_trial: bool) -> list[HeldThing]:
        """Delete, or only list, old contents that no job needs.

        Args:
            in_use: trees of jobs that run or wait here.
        """
        with self._lock:
            kept, now_s = self._kept(in_use), time.time()
            told = {path: path.stat() for path in self._blobs() if path.name not in kept}
            gone = {path: one for path, one in told.items() if now_s - one.st_mtime > KEPT_S}
            for path in () if is_trial else gone:
                path.unlink(missing_ok=True)
            self._bytes = self._bytes if is_trial else None
        size = sum(one.st_size for one in gone.values())
        return [HeldThing("blobs", str(self.directory), size)] if gone else []

    def _touch(self, sha256: str, size: int) -> bool:
        path = self.path_of(sha256)
        try:
            if path.stat().st_size != size:
                return False
            os.utime(path)
        except OSError:
            return False
        return True

    def _upload_path(self, part: UploadPart) -> Path:
        who = hashlib.sha256(part.who.encode()).hexdigest()[:16]
        return self.directory / UPLOADS / f"{who}-{part.key}-{part.sha256}"

    def _append(self, path: Path, part: UploadPart) -> None:
        private_directory(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - made with its mode
                file.seek(part.offset)
                file.truncate()
                file.write(part.content)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise RefusedError(
                f"a file of the project cannot be stored: {error.strerror}",
                kind=Kind.DISK_FULL,
                fix="free space on its disk",
            ) from error

    def _finish(self, path: Path, part: UploadPart) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != part.sha256:
            path.unlink()
            raise SpecError(
                "a file of the project changed while it was sent",
                fix="launch again once nothing writes to the project",
            )
        goal = self.path_of(part.sha256)
        private_directory(goal.parent)
        path.replace(goal)
        self._bytes = None if self._bytes is None else self._bytes + part.size_bytes

    def _uploads(self) -> list[Path]:
        folder = self.directory / UPLOADS
        return list(folder.iterdir()) if folder.exists() else []

    def _clean_uploads(self) -> None:
        """Delete uploads that nobody continues, because their driver is gone."""
        for path in self._uploads():
            if time.time() - path.stat().st_mtime > PATIENCE_S:
                path.unlink(missing_ok=True)

    def _refuse_crowd(self, part: UploadPart, path: Path) -> None:
        open_now = [one for one in self._uploads() if one != path]
        prefix = path.name.partition("-")[0]
        own = sum(one.name.startswith(prefix) for one in open_now)
        if own >= MOST_UPLOADS_EACH or len(open_now) >= MOST_UPLOADS:
            raise TooManyError(
                f"{own} uploads are open for {part.who}, {len(open_now)} for all",
                fix="try again when they have ended",
            )

    def _make_room(self, size: int, in_use: Collection[str]) -> None:
        """Delete the least recently used contents until there is enough space.

        Raises:
            RefusedError: there is none: jobs use the rest, or the disk is full.
        """
        private_directory(self.directory)
        free = shutil.disk_usage(self.directory).free - size
        if self._bytes is not None and self._fits(self._bytes + size, free):
            return
        told = {path: path.stat() for path in self._blobs()}
        total = sum(one.st_size for one in told.values())
        kept = self._kept(in_use)
        for path in sorted(told, key=lambda one: told[one].st_mtime):
            if self._fits(total + size, free):
                break
            if path.name not in kept and time.time() - told[path].st_mtime > KEPT_S:
                path.unlink(missing_ok=True)
                total, free = total - told[path].st_size, free + told[path].st_size
        self._bytes = total
        if free < SPARE_BYTES:
            raise RefusedError(
                f"its disk has no room for {rough_size(size)} of the project",
                kind=Kind.DISK_FULL,
                fix="free space on its disk",
            )
        if total + size > STORE_BYTES:
            raise RefusedError(
                f"files of projects fill what it keeps of them, {rough_size(STORE_BYTES)}",
                kind=Kind.TOO_LARGE,
                fix="wait until other jobs have ended, or raise projects.store_bytes there",
            )

    def _fits(self, total: int, free: int) -> bool:
        return total <= STORE_BYTES and free >= SPARE_BYTES

    def _blobs(self) -> Iterator[Path]:
        yield from self.directory.glob("[0-9a-f][0-9a-f]/*")

    def _kept(self, in_use: Collection[str]) -> set[str]:
        kept = set(in_use)
        for sha256 in in_use:
            try:
                kept.update(read_tree(self.path_of(sha256).read_bytes()).blobs)
            except (OSError, SpecError):  # it is refused when its job starts
                continue
        return kept


def _check(part: UploadPart) -> None:
    end = part.offset + len(part.content)
    is_short = not part.content and part.size_bytes
    if is_short or end > part.size_bytes or part.size_bytes > STORE_BYTES:
        raise SpecError("this part does not belong to a file of that size")


def _out_of_turn() -> SpecError:
    return SpecError("an earlier part of this file is missing", fix="launch it again")


def _lacking(what: str) -> RefusedError:
    return RefusedError(
        f"lacks files of the job's project: {what}",
        kind=Kind.NO_FILE,
        fix="launch it from the project's folder again: --project DIR",
    )
