"""Headline: the first problem of a job to show, in status, page, picture and notices. Pure.

What hurts most now stands first: a failure before a stall, a stall before a warning, each of them
before the state and the figures.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TERMINAL, JobState

Hurt = Literal["failed", "stalled", "warned"]
"""How a problem hurts a job, the worst first."""


class Judged(Protocol):
    """A job's state, with the problems that were found."""

    @property
    def state(self) -> JobState: ...

    @property
    def problem(self) -> Problem | None: ...

    @property
    def stall(self) -> Problem | None: ...

    @property
    def warnings(self) -> tuple[Problem, ...]: ...


class Told(NamedTuple):
    """One problem of a job, and its effect."""

    hurt: Hurt
    problem: Problem


def what_hurts(job: Judged) -> tuple[Told, ...]:
    """Return all current problems of a job in the order in which they are shown; empty if none.

    A job that has ended stalls no more, and what a stall says is no warning as well.
    """
    told = [] if job.problem is None else [Told("failed", job.problem)]
    if job.stall is not None and job.state not in TERMINAL:
        told.append(Told("stalled", job.stall))
    known = {one.problem.kind for one in told}
    return (*told, *(Told("warned", one) for one in job.warnings if one.kind not in known))


def headline_of(job: Judged) -> Told | None:
    """Return the worst current problem of a job; ``None`` if there is none."""
    return next(iter(what_hurts(job)), None)
