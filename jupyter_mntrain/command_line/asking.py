"""Asking: whether a person can answer, and yes-or-no questions to them."""

from __future__ import annotations

import sys

_YES = frozenset({"y", "yes"})


def can_ask(program: str) -> bool:
    """Return whether there is a person who can answer.

    Args:
        program: ``%mntrain`` in a notebook, which asks below the cell.
    """
    return program.startswith("%") or (sys.stdin is not None and sys.stdin.isatty())


def agrees(question: str, program: str) -> bool | None:
    """Ask a yes-or-no question; return ``None`` if nobody can answer."""
    if not can_ask(program):
        return None
    try:
        return input(f"{question} [y/N] ").strip().lower() in _YES
    except (EOFError, OSError, RuntimeError):  # closed, or a notebook that nobody is watching
        return None
