"""System errors: explains the number of an ``OSError``, on nodes and on a driver's machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.whereabouts import is_kept

KINDS: Final = {
    errno.ENOSPC: Kind.DISK_FULL,
    errno.EDQUOT: Kind.DISK_FULL,
    errno.EACCES: Kind.NO_PERMISSION,
    errno.EPERM: Kind.NO_PERMISSION,
    errno.EROFS: Kind.READ_ONLY,
    errno.EIO: Kind.DISK_ERROR,
    errno.EMFILE: Kind.TOO_MANY_FILES,
    errno.ENFILE: Kind.TOO_MANY_FILES,
    errno.EFBIG: Kind.FILE_TOO_LARGE,
    errno.ENOMEM: Kind.OUT_OF_MEMORY,
}

_NOT_OF_FILES: Final = frozenset({Kind.TOO_MANY_FILES, Kind.OUT_OF_MEMORY, Kind.DISK_FULL})
"""Errors that say enough without a file's name; sockets, too, may lack a permission."""

_HERE: Final = {
    Kind.DISK_FULL: "free some space, or raise the quota; df -h and df -i show what is full",
    Kind.NO_PERMISSION: "give yourself permission to read and write it, or name another place",
    Kind.READ_ONLY: "name a place that can be written to",
    Kind.DISK_ERROR: "check dmesg and the disk, or the file server",
    Kind.TOO_MANY_FILES: "raise the limit: ulimit -n",
    Kind.FILE_TOO_LARGE: "raise the limit: ulimit -f",
    Kind.OUT_OF_MEMORY: "end other programs, or raise the limit: ulimit -v",
}

_KEPT_ELSEWHERE: Final = "export HOME=/FOLDER, one that you can write to, or make this one writable"


def told_of(error: OSError) -> str:
    """Return the system's message and the file it is about, without Python's error number."""
    words = error.strerror or str(error)
    return f"{words}: {os.fspath(error.filename)}" if error.filename else words


def full_disk(path: Path) -> OSError:
    """Return the error for a short write, for which the system itself reports none."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@contextmanager
def system_errors_told() -> Iterator[None]:
    """Turn this machine's system errors into errors with a fix.

    Raises:
        SpecError: a disk, a permission or a limit of this machine stands in the way.
    """
    try:
        yield
    except OSError as error:
        told = _told(error)
        if told is None:
            raise
        raise told from error


def _told(error: OSError) -> SpecError | None:
    kind = KINDS.get(error.errno or 0)
    name = error.filename if isinstance(error.filename, str) else ""
    kept = error.filename2 or name
    if kind not in _NOT_OF_FILES and name and isinstance(kept, str) and is_kept(kept):
        return SpecError(told_of(error), kind=kind, fix=_KEPT_ELSEWHERE)
    if kind is None or not (name or kind in _NOT_OF_FILES):
        return None
    return SpecError(told_of(error), kind=kind, fix=_HERE[kind])
