"""Asking: whether somebody can answer, and a question to them with yes or no."""

from __future__ import annotations

import sys

_YES = frozenset({"y", "yes"})


def can_ask(program: str) -> bool:
    """Whether somebody sits there.

    Args:
        program: ``%mntrain`` in a notebook, which asks below the cell.
    """
    return program.startswith("%") or (sys.stdin is not None and sys.stdin.isatty())


def agrees(question: str, program: str) -> bool | None:
    """Whether the person says yes; ``None`` if nobody can be asked."""
    if not can_ask(program):
        return None
    try:
        return input(f"{question} [y/N] ").strip().lower() in _YES
    except (EOFError, OSError, RuntimeError):  # closed, or a notebook that nobody is watching
        return None
