"""Hypothesis: one explanation of a failure, and what was found."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_mntrain.model.failure.problem import Problem


class Hypothesis(NamedTuple):
    """One explanation.

    Args:
        speaks_for: what was found that it explains, as sentences without a full stop.
        speaks_against: what was found that it does not explain.
    """

    problem: Problem
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
