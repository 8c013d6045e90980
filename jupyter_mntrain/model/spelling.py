"""Spelling: suggests known names for a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three of ``known`` that resemble ``word``, nearest first."""
    return difflib.get_close_matches(word, sorted(set(known)), n=3)


def use_nearest(word: str, known: Iterable[str], otherwise: str, *, most: int = 3) -> str:
    """Return the fix for a misspelled word, with up to ``most`` names; ``otherwise`` where nothing
    resembles it.
    """
    near = closest(word, known)[:most]
    return f"use {' or '.join(near)}" if near else otherwise
