"""Spikes: steps with an unusually high loss or norm are skipped, on all ranks alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite, isnan
from statistics import median
from typing import Final

import torch
import torch.distributed as dist

from jupyter_mntrain.model.errors import NotFiniteError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.not_finite import with_checkpoint
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.recipe.sections import TrainSection

WINDOW: Final = 128
"""Number of applied steps for the median: the window of OLMo-core's SkipStepOptimizer."""
FEWEST: Final = 16
"""Of fewer the median says little, and the first losses fall fast: only NaN is skipped then."""

HISTORY, COUNTS = "spikes/history", "spikes/counts"
"""Tensors of a checkpoint: a resumed run skips what an unbroken one does."""


class Spikes:
    """Decides which steps are applied.

    Args:
        say: prints a line to the job's log, on one rank.

    Attributes:
        skipped: steps of the run that were not applied.
        last_step: the last of them; 0 if none.
    """

    def __init__(self, section: TrainSection, say: Callable[[str], None]) -> None:
        self._times, self._limit, self._say = section.skip_spikes, section.skip_limit, say
        self._history: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._in_a_row = 0
        self.skipped = 0
        self.last_step = 0

    @property
    def is_over(self) -> bool:
        """Whether as many steps in a row were skipped as the recipe allows."""
        return bool(self._times) and self._in_a_row >= self._limit

    @property
    def fields(self) -> dict[str, int]:
        """Return fields for the sample of a step."""
        if not self.skipped:
            return {}
        return {"skipped": self.skipped, "skipped_step": self.last_step}

    def applies(self, step: int, loss: torch.Tensor, norm: torch.Tensor) -> bool:
        """Whether to apply a step to the weights. Collective if steps may be skipped.

        All ranks decide by rank 0's numbers: devices may round a sum differently. Reading them
        makes a GPU wait for the host in each step.

        Args:
            step: counted from 1.
        """
        if not self._times:
            return True
        numbers = torch.stack([loss.double(), norm.double()])
        dist.broadcast(numbers, 0)
        value, size = numbers.tolist()
        why = self.judge(value, size)
        if why is None:
            self._history.append((value, size))
            self._in_a_row = 0
            return True
        self.skipped, self.last_step, self._in_a_row = self.skipped + 1, step, self._in_a_row + 1
        if dist.get_rank() == 0:
            self._say(f"step {step} skipped: {why}; {self.skipped} skipped so far")
        return False

    def judge(self, loss: float, norm: float) -> str | None:
        """Return why a step is a spike; ``None`` if it is normal."""
        for place, (what, value) in enumerate((("loss", loss), ("gradient norm", norm))):
            if not isfinite(value):
                return f"the {what} is {'NaN' if isnan(value) else 'infinite'}"
            if len(self._history) < FEWEST:
                continue
            usual = median(one[place] for one in self._history)
            if value > self._times * usual > 0:
                return (
                    f"the {what} {value:.4g} is more than {self._times:g} times the median "
                    f"{usual:.4g} of {len(self._history)} steps"
                )
        return None

    def error(self, step: int, saved_step: int | None) -> NotFiniteError:
        """Return the error that every rank raises once :attr:`is_over`. Collective.

        Args:
            saved_step: step of the newest complete checkpoint.
        """
        first = step - self._in_a_row + 1
        problem = Problem(
            kind=Kind.LOSS_DIVERGED,
            cause=f"{self._in_a_row} steps in a row were skipped as spikes, since step {first}",
            fix=fix_of(Kind.LOSS_DIVERGED, step=first),
            step=first,
        )
        # No rank may exit before all have the numbers: see agree().
        dist.all_reduce(torch.zeros(1))
        return NotFiniteError.of(with_checkpoint(problem, saved_step))

    def state(self) -> dict[str, torch.Tensor]:
        """Return what a checkpoint keeps; empty before the first step that was judged."""
        if not self._history:
            return {}
        counts = [self.skipped, self.last_step, self._in_a_row]
        return {
            HISTORY: torch.tensor(list(self._history), dtype=torch.float64),
            COUNTS: torch.tensor(counts, dtype=torch.int64),
        }

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the :meth:`state` from a checkpoint, if it has one."""
        if HISTORY in state and COUNTS in state:
            self._history.extend((loss, norm) for loss, norm in state[HISTORY].tolist())
            self.skipped, self.last_step, self._in_a_row = state[COUNTS].tolist()
