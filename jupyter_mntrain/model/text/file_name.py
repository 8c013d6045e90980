"""File name: a name that somebody else gave, as one part of a path."""

from __future__ import annotations

LONGEST = 100


def file_name(name: str) -> str:
    """Letters, digits, ``-`` and ``_`` of a name; ``_`` for all else, so that it leads nowhere."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return kept[:LONGEST] or "_"
