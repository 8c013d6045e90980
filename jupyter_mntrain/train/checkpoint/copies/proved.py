"""Proved copies: files that are read back from the disk they were written to."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.train.checkpoint.copies.neighbors import PIECE_BYTES, sync
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION


def copy_proved(source: Path, target: Path, size_bytes: int, copied: Callable[[int], None]) -> None:
    """Copy a file, and compare what is on the disk then with what was read.

    Args:
        size_bytes: that it must have.
        copied: told the bytes of each piece.

    Raises:
        OSError: it cannot be copied, differs, or has another size.
    """
    digest = hashlib.sha256()
    with source.open("rb") as old, target.open("wb") as new:
        while piece := old.read(PIECE_BYTES):
            digest.update(piece)
            new.write(piece)
            copied(len(piece))
    sync(target)
    with target.open("rb") as new:
        os.posix_fadvise(new.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read the disk, not memory
        if hashlib.file_digest(new, "sha256").digest() != digest.digest():
            raise OSError(f"{target} differs from {source} after copying")
    found = target.stat().st_size
    if found != size_bytes:
        raise OSError(f"{target} has {found:,} bytes, and its manifest says {size_bytes:,}")


def copy_description(source: Path, target: Path) -> None:
    """Copy config and tokenizer, with which a copy can be exported, and generate a text.

    Args:
        source, target: directories of checkpoints.
    """
    with suppress(OSError):  # the checkpoint is whole without
        shutil.copytree(source / DESCRIPTION, target / DESCRIPTION, dirs_exist_ok=True)
