"""Finite check: stops all ranks when the loss or the gradient is NaN or infinite.

Both are summed over all ranks in every step, and NaN stays NaN in a sum: so all ranks see it in the
same step, and decide alike. Only then do they ask who had it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Literal

import msgspec
import torch
import torch.distributed as dist

from jupyter_mntrain.families.directories import CONFIG
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import ON_NAN_VARIABLE
from jupyter_mntrain.model.errors import NotFiniteError
from jupyter_mntrain.model.failure.not_finite import Measure, not_finite, with_checkpoint
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.world import World, gathered

OnNan = Literal["stop", "report"]


class _Own(Record, frozen=True):
    """The numbers of one rank before they were summed."""

    host: str
    is_loss_finite: bool
    is_gradient_finite: bool


class FiniteCheck:
    """Checks the numbers of each step, with the same result on all ranks.

    Args:
        on_nan: ``report`` prints one line and goes on.
        say: prints a line to the job's log.
        model: directory of the weights that training begins with, if there is one.
    """

    def __init__(
        self,
        world: World,
        on_nan: OnNan,
        say: Callable[[str], None],
        model: str | None = None,
    ) -> None:
        self._model = model
        self._world = world
        self._on_nan = on_nan
        self._say = say
        self._own_loss = self._own_square = torch.zeros(())
        self._is_said = False

    def note(self, loss: torch.Tensor, square: torch.Tensor | None = None) -> None:
        """Keep this rank's loss and squared gradient norm from before the sum."""
        self._own_loss = loss
        self._own_square = torch.zeros(()) if square is None else square

    def is_bad(self, *sums: float) -> bool:
        """Whether to stop; the same on all ranks, since the sums are."""
        if all(map(isfinite, sums)):
            return False
        if self._on_nan == "stop":
            return True
        if self._world.is_head and not self._is_said:
            self._is_said = True
            self._say("warning: the loss or the gradient is NaN or infinite; see train.on_nan")
        return False

    def error(
        self, what: Measure, step: int, sums: Mapping[str, float], saved_step: int | None
    ) -> NotFiniteError:
        """Make the error that every rank raises. Collective.

        Args:
            what: the loss that is in ``sums``.
            step: the optimizer step, from 1; 0 before the first.
            sums: loss and gradient norm of all ranks.
            saved_step: step of the newest complete checkpoint.
        """
        mine = _Own(
            host=self._world.host,
            is_loss_finite=bool(torch.isfinite(self._own_loss)),
            is_gradient_finite=bool(torch.isfinite(self._own_square)),
        )
        ranks = gathered(self._world, mine)
        # No rank may exit before all have received the answers: see agree().
        dist.all_reduce(torch.zeros(1))
        problem = with_checkpoint(_problem(what, step, sums, ranks), saved_step)
        if self._model is not None and step <= 1:
            fix = f"{problem.fix}; or copy {CONFIG} and weights of {self._model} again"
            problem = msgspec.structs.replace(problem, fix=fix)
        return NotFiniteError.of(problem)


def chosen(recipe: Recipe, environment: Mapping[str, str]) -> OnNan:
    """Return what to do about NaN: what the launch says, else what the recipe says."""
    match environment.get(ON_NAN_VARIABLE):
        case "stop":
            return "stop"
        case "report":
            return "report"
    return recipe.train.on_nan


def _problem(what: Measure, step: int, sums: Mapping[str, float], ranks: list[_Own]) -> Problem:
    # A gradient flows from the last stage to the first: the highest rank had it first.
    losses = [rank for rank, one in enumerate(ranks) if not one.is_loss_finite]
    gradients = [rank for rank, one in enumerate(ranks) if not one.is_gradient_finite]
    rank = max(losses or gradients or [0])
    value = sums["loss"]
    if isfinite(value):
        what, value = "gradient", sums["grad_norm"]
    return not_finite(what, value, step, node=ranks[rank].host, rank=Rank(rank))
