"""Contents: what a model or data set consists of, to be compared with the other nodes' copies."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.machine import MOST_FILES

HASHED_BYTES = tunables.size("doctor.hashed_file_bytes")
HASHED_IN_ALL_BYTES = tunables.size("doctor.hashed_bytes")


def contents(path: Path) -> dict[str, str]:
    """Size of each file, and of small ones the beginning of their SHA-256.

    Large ones are weights or data, of which reading all would take minutes. Programs that download
    keep their own notes in hidden files, which differ everywhere.
    """
    named = [path] if path.is_file() else list(islice(_files(path), MOST_FILES))
    found: dict[str, str] = {}
    left = HASHED_IN_ALL_BYTES
    for one in named:
        name = path.name if one == path else str(one.relative_to(path))
        try:
            stat = one.stat()
            is_read = stat.st_size <= min(HASHED_BYTES, left)
            digest = _digest(one, stat.st_size, stat.st_mtime_ns) if is_read else ""
        except OSError:
            found[name] = "unreadable"
            continue
        left -= stat.st_size if is_read else 0
        found[name] = f"{stat.st_size} {digest}".rstrip()
    return found


def _files(folder: Path) -> Iterator[Path]:
    """In the same order on every machine."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(files) if not name.startswith("."))


@lru_cache(maxsize=4 * MOST_FILES)
def _digest(path: Path, _size: int, _changed_ns: int) -> str:
    """Launches ask again and again: a file is read anew once its size or time has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
