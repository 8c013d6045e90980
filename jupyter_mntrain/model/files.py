"""Small files, written atomically."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path``: after a crash it holds the old content or the new, never a part."""
    mine = f"{os.getpid()}.{threading.get_native_id()}"
    temporary = path.with_name(f".{path.name}.{mine}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor made with its mode
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def fsync_directory(path: Path) -> None:
    """Make what was created, renamed or deleted in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
