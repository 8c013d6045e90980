"""Question: what a criterion asks, before it is answered with a verdict. Pure."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_mntrain.metrics.acceptance.acceptance_report import Criterion, Observed, Part
from jupyter_mntrain.model.failure.problem import Problem


class Question(NamedTuple):
    """A criterion before there is a verdict on it; arguments as of :class:`Criterion`."""

    key: str
    title: str
    how: str = ""

    def unreached(self, observed: Observed, part: Part) -> Criterion:
        """Return a verdict for a criterion whose part did not run."""
        return self.unjudged(observed.left_out.get(part, "it was not reached"))

    def unjudged(self, why: str, figure: str = "") -> Criterion:
        """Return a verdict for a criterion that could not be judged."""
        return Criterion(self.key, self.title, "not judged", figure=figure, why=why, how=self.how)

    def failed(self, problem: Problem) -> Criterion:
        """Return a verdict for a criterion whose trial failed."""
        return Criterion(self.key, self.title, "failed", why=str(problem), how=self.how)

    def judged(
        self,
        is_right: bool,
        *,
        figure: str,
        why: str,
        value: float | None = None,
        limit: float | None = None,
    ) -> Criterion:
        """Return a verdict by what was measured."""
        return Criterion(
            self.key,
            self.title,
            "passed" if is_right else "failed",
            figure=figure,
            value=value,
            limit=limit,
            why=why,
            how=self.how,
        )
