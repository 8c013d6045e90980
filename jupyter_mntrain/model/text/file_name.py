"""File names: turns untrusted names into parts of paths, and checks lengths."""

from __future__ import annotations

from pathlib import PurePosixPath

LONGEST = 100

LONGEST_PATH_BYTES = 1024
LONGEST_PART_BYTES = 255
"""Longest name on Linux file systems."""


def file_name(name: str) -> str:
    """Replace all but letters, digits, ``-`` and ``_`` by ``_``, so that a name cannot leave a
    folder.
    """
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return kept[:LONGEST] or "_"


def is_of_macos(name: str) -> bool:
    """Whether a file only holds attributes that macOS stores for another file or a folder."""
    return name == ".DS_Store" or name.startswith("._")


def is_long(path: str) -> bool:
    """Whether a path within a job's folder, or a part of it, is too long."""
    parts = PurePosixPath(path).parts
    return len(path.encode()) > LONGEST_PATH_BYTES or any(
        len(part.encode()) > LONGEST_PART_BYTES for part in parts
    )
