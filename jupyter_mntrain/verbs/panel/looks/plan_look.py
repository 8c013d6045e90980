"""Plan look: plans the chosen job, once its form is shown."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.choosing.job_plan import JobPlan, plan_job
from jupyter_mntrain.recipe.sections import Recipe


class PlanQuestion(Record, frozen=True):
    """What a plan depends on.

    Args:
        recipe: with what its devices decide.
        nodes: of the participants, in the same order.
    """

    recipe: Recipe
    participants: tuple[Participant, ...]
    nodes: tuple[NodeInfo, ...]


class PlanLook:
    """Caches the newest plan."""

    def __init__(self) -> None:
        self._question: PlanQuestion | None = None
        self._plan: JobPlan | None = None

    def of(self, question: PlanQuestion) -> JobPlan | None:
        """Return the plan, if it is known."""
        return self._plan if question == self._question else None

    def look(self, question: PlanQuestion | None) -> bool:
        """Plan, unless the plan is known; return ``True`` if that changes what is shown."""
        if question is None or question == self._question:
            return False
        self._question = question
        try:
            self._plan = plan_job(question.recipe, question.participants, question.nodes)
        except MntrainError:
            self._plan = None  # the form's checks say why
        return self._plan is not None
