"""Brief words: of what an error says, and of many names, what fits into a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_NAMED: Final = 3


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its type if it says nothing."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def some_of(names: Sequence[str], count: int | None = None) -> str:
    """The first of some names, and … if there are more.

    Args:
        count: of all of them, if ``names`` are only examples.
    """
    shown = names[:MOST_NAMED]
    return ", ".join(shown) + ", …" * ((len(names) if count is None else count) > len(shown))
