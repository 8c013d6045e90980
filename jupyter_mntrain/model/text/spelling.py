"""Spelling: suggests known names for a misspelled one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUFFIX = re.compile(r"\.(?:py|toml)$")


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three of ``known`` that resemble ``word``, nearest first.

    The dashes of an option and the suffix of a recipe or script do not count as resemblance.
    """
    import difflib  # only for those who misspell

    names: dict[str, list[str]] = {}
    for name in sorted(set(known)):
        names.setdefault(_core(name), []).append(name)
    near = difflib.get_close_matches(_core(word), names, n=3)
    return [name for core in near for name in names[core]][:3]


def _core(word: str) -> str:
    return _SUFFIX.sub("", word.lstrip("-")) or word


def use_nearest(word: str, known: Iterable[str], otherwise: str, *, most: int = 3) -> str:
    """Return the fix for a misspelled word, with up to ``most`` names; ``otherwise`` if no name
    resembles it.
    """
    near = closest(word, known)[:most]
    return f"use {' or '.join(near)}" if near else otherwise
