"""Brief text: shortens errors and lists of names to one line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_NAMED: Final = 3


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its type if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def some_of(names: Sequence[str], count: int | None = None) -> str:
    """Join the first of some names, with … if there are more.

    Args:
        count: of all of them, if ``names`` are only examples.
    """
    shown = names[:MOST_NAMED]
    return ", ".join(shown) + ", …" * ((len(names) if count is None else count) > len(shown))
