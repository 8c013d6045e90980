"""Misspelled names: which known ones could have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of ``known`` that resemble ``word``, the nearest first."""
    return difflib.get_close_matches(word, sorted(set(known)), n=3)
