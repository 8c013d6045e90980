"""Contents: what a model or data set consists of, to be compared with the other nodes' copies."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.machine import MOST_FILES

HASHED_BYTES = tunables.size("doctor.hashed_file_bytes")


def contents(path: Path) -> dict[str, str]:
    """Size of each file, and of small ones the beginning of their SHA-256.

    Large ones are weights or data, of which reading all would take minutes.
    """
    if path.is_file():
        return {path.name: _told(path)}
    return {str(one.relative_to(path)): _told(one) for one in islice(_files(path), MOST_FILES)}


def _files(folder: Path) -> Iterator[Path]:
    """In the same order on every machine."""
    for where, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(where) / name for name in sorted(files))


def _told(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > HASHED_BYTES:
            return f"{size}"
        return f"{size} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    except OSError:
        return "unreadable"
