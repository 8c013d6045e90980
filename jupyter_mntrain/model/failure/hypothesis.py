"""Hypothesis: one explanation of a failure, with its evidence."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_mntrain.model.failure.problem import Problem


class Hypothesis(NamedTuple):
    """One explanation of a failure.

    Args:
        speaks_for: what was found that it explains, as sentences without a full stop.
        speaks_against: what was found that it does not explain.
    """

    problem: Problem
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
