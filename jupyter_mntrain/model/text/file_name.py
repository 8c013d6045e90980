"""File name: a name that somebody else gave, as one part of a path; what is too long."""

from __future__ import annotations

from pathlib import PurePosixPath

LONGEST = 100

LONGEST_PATH_BYTES = 1024
LONGEST_PART_BYTES = 255
"""Longest name on Linux file systems."""


def file_name(name: str) -> str:
    """Letters, digits, ``-`` and ``_`` of a name; ``_`` for all else, so that it leads nowhere."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return kept[:LONGEST] or "_"


def is_of_macos(name: str) -> bool:
    """Whether macOS keeps attributes of another file, or of a folder's window, in a file."""
    return name == ".DS_Store" or name.startswith("._")


def is_long(path: str) -> bool:
    """Whether a path within a job's folder, or a part of it, is longer than one can be."""
    parts = PurePosixPath(path).parts
    return len(path.encode()) > LONGEST_PATH_BYTES or any(
        len(part.encode()) > LONGEST_PART_BYTES for part in parts
    )
