"""Failures of a job's earlier attempts, one per line. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.model.lifecycle.restarts import fails_alike
from jupyter_mntrain.model.records.job import Attempt, JobView


def failure_lines(attempt: Attempt, *, after: int = 0) -> Iterator[str]:
    """Yield why each earlier attempt failed, where that is known.

    Args:
        after: the attempts up to the one before this number have been told.
    """
    failures = attempt.earlier.failures if attempt.earlier else ()
    first = attempt.number - len(failures)
    for number, failure in enumerate(failures, first):
        if number >= after:
            yield f"attempt {number} failed: {failure}"


def ended_alike(view: JobView) -> str:
    """Explain that no attempt followed because two failed alike; empty if that is not why."""
    attempt = view.attempt
    found = (part.problem for part in view.parts if part.problem is not None)
    is_left = view.state == "failed" and attempt.number <= view.spec.max_restarts
    if is_left and any(fails_alike(attempt, failure) for failure in found):
        return (
            f"attempt {attempt.number} failed like attempt {attempt.number - 1}, before any "
            "progress: it was not restarted"
        )
    return ""
