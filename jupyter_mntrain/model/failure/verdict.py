"""Verdict: why an attempt failed, how certain that is, and on what grounds."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem

Sureness = Literal["certain", "likely", "unknown"]


class Verdict(Record, frozen=True):
    """Why an attempt failed.

    Args:
        speaks_for: findings that the problem explains, as sentences without a full stop.
        speaks_against: findings that it does not explain.
        others: what else happened, the first one first.
        is_waiting: more evidence is being gathered, and may change it.
    """

    problem: Problem
    sureness: Sureness
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
    others: tuple[Problem, ...] = ()
    is_waiting: bool = False

    @property
    def told_reasons(self) -> str:
        """The reasons, if other things happened that might be the cause; empty otherwise."""
        return self.reasons if self.others else ""

    @property
    def reasons(self) -> str:
        """How certain the verdict is, and why: ``Certain: it ended 0.3 s before node1: rank 0``."""
        told = f"{self.sureness.capitalize()}: {'; '.join(self.speaks_for)}"
        against = "; ".join(self.speaks_against)
        return f"{told}. Against it: {against}" if against else told
