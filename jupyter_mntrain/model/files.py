"""Files: writes small files atomically, and keeps directories private to this user."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
SHARED: Final = 0o644
"""Modes of files, before the umask."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def write_atomically(
    path: Path, content: bytes, *, mode: int = PRIVATE, is_durable: bool = True
) -> None:
    """Replace a file: after a crash it has either the old or the new content.

    Args:
        is_durable: also after a power failure.
    """
    # Nodes that share a directory may have equal process ids.
    mine = f"{os.getpid()}.{threading.get_native_id()}.{os.urandom(4).hex()}"
    temporary = path.with_name(f".{path.name}.{mine}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor made with its mode
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def private_directory(path: Path) -> Path:
    """Create a directory that only this user may enter, and its missing parents."""
    if not path.exists():
        private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def close_to_others(path: Path) -> bool:
    """Take other users' permissions from a directory; return whether they could enter it.

    If they could, also from everything in it. Symbolic links are not followed.
    """
    mode = path.stat().st_mode
    if not mode & _OTHERS:
        return False
    path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    for folder, _, names in os.walk(path):
        for inside in (Path(folder), *(Path(folder, name) for name in names)):
            if not inside.is_symlink() and inside.exists():
                inside.chmod(stat.S_IMODE(inside.stat().st_mode) & ~_OTHERS)
    return True


def fsync_directory(path: Path) -> None:
    """Flush a directory, so that created, renamed and deleted entries survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
