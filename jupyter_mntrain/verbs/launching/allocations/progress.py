"""Progress: prints what an allocation waits for, whenever that changes."""

from __future__ import annotations

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import Allocation, AllocationChange, changes
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.sources.awaited_launch import refusal_of
from jupyter_mntrain.verbs.launching.allocations.words import granted_line, waiting_line
from jupyter_mntrain.verbs.verb import Context


class AllocationProgress:
    """Prints what changes in one allocation, and why it waits."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: Allocation | None = None
        self._said: tuple[str, bool] | None = None
        self._silence: Problem | None = None

    def look(self, now: Allocation) -> None:
        """Print what has changed since the last look."""
        if now.state == "unknown":
            self._tell_silence(now)
            return
        if self._silence is not None:
            self._silence = self._said = None
        for change in changes(self._seen, now):
            self.tell(now, change)
        self._seen = now
        self.tell_why_it_waits(now)

    def tell(self, now: Allocation, change: AllocationChange) -> None:
        """Print a change, except for why the allocation waits."""
        if change.kind == "granted":
            self._context.screen.say(granted_line(now))
        elif change.problem is not None and change.kind not in ("waits", "ended"):
            self._context.screen.say(problem_text(change.problem, mark="⚠", style="yellow"))

    def tell_why_it_waits(self, now: Allocation) -> None:
        """Print why it waits, unless that is known; again once its expected start is known."""
        waiting, now_s = now.waiting, self._context.clock()
        if waiting is None:
            return
        news = waiting.word, waiting.forecast_s(now_s) is not None
        if news != self._said or self._context.screen.keeps_last:
            self._said = news
            self._context.screen.say(waiting_line(waiting, now_s))

    def _tell_silence(self, now: Allocation) -> None:
        """Print once why the scheduler does not report the allocation's state."""
        problem = now.problem
        if problem is None or problem == self._silence or refusal_of(now) is not None:
            return
        self._silence = problem
        self._context.screen.say(problem_text(problem, mark="⚠", style="yellow"))
