"""Killed at any moment: which rounds ``python -m tests.faults.killed`` plays."""

from __future__ import annotations

from itertools import product
from typing import get_args

from tests.faults.killed import Moment, Strike, drawn


def test_each_strike_comes_at_each_moment_before_any_comes_again() -> None:
    pairs = set(product(get_args(Moment), get_args(Strike)))
    rounds = list(drawn(7, 2 * len(pairs)))
    for half in (rounds[: len(pairs)], rounds[len(pairs) :]):
        assert {(one.moment, one.strike) for one in half} == pairs
    assert {one.host for one in rounds} == {0, 1}
    assert all(0 <= one.delay < 1 for one in rounds)


def test_a_seed_is_the_same_rounds_however_many_are_played() -> None:
    assert list(drawn(7, 50))[:9] == list(drawn(7, 9))
    assert list(drawn(7, 9)) != list(drawn(8, 9))
