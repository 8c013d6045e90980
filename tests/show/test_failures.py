"""Failures: what a job that was restarted has been through."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Attempt, Earlier, JobSpec, JobView, PartStatus
from jupyter_mntrain.show.failures import ended_alike, failure_lines
from tests.model.lifecycle.test_restarts import KEY, LOST, part, place


def attempt(number: int, *failures: Problem, is_early: bool = True) -> Attempt:
    earlier = Earlier(world_size=1, failures=failures, is_early=is_early) if failures else None
    return Attempt(number, (place(1),), "10.0.0.1", 1, 1000.0, earlier=earlier)


def test_each_attempt_is_told_once():
    third = attempt(3, LOST, KEY)
    assert [one.split()[1] for one in failure_lines(third)] == ["1", "2"]
    assert [one.split()[1] for one in failure_lines(third, after=2)] == ["2"]
    assert list(failure_lines(attempt(1))) == []


def view(problem: Problem, newest: Attempt, max_restarts: int = 3) -> JobView:
    spec = JobSpec(entry=("a.py",), participants=(), max_restarts=max_restarts)
    own: PartStatus = msgspec.structs.replace(part(1, "failed", 1), problem=problem)
    return JobView("j-1", spec, newest, "failed", (own,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "is_alike"),
    [
        (view(KEY, attempt(2, KEY)), True),
        (view(LOST, attempt(2, KEY)), False),
        (view(KEY, attempt(2, KEY, is_early=False)), False),
        (view(KEY, attempt(4, KEY)), False),
    ],
)
def test_why_no_other_attempt_followed_is_said(told: JobView, is_alike: bool):
    assert bool(ended_alike(told)) is is_alike
