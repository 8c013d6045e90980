"""Random searches and combinations: short by default, long on request."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

ALL_CASES = "MNTRAIN_ALL_CASES"


def runs_all() -> bool:
    return ALL_CASES in os.environ


def count(short: int, long: int) -> int:
    """Of random cases."""
    return long if runs_all() else short


def pairs(
    *options: Sequence[Any], there_is: Callable[..., bool] = lambda *_: True
) -> list[tuple[Any, ...]]:
    """Combinations in which every two values of different options meet; on request, all of them.

    What two settings do to each other needs no third: a case proves as many pairs as it has.

    Args:
        there_is: whether a combination exists.
    """
    every = [one for one in product(*options) if there_is(*one)]
    if runs_all():
        return every
    chosen: list[tuple[Any, ...]] = []
    open_ones = {pair for one in every for pair in _met(one)}
    while open_ones:
        best = max(every, key=lambda one: len(_met(one) & open_ones))
        open_ones -= _met(best)
        chosen.append(best)
    return chosen


def _met(one: tuple[Any, ...]) -> set[Any]:
    return set(combinations(enumerate(one), 2))
