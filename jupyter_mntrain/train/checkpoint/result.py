"""The result of a run, as one of its ranks knows it."""

from __future__ import annotations

from math import isfinite

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.checkpoint import RunFigures, last_and_lowest


class TrainResult(Record, frozen=True):
    """The result of a run; losses and norms are the same on every rank."""

    rank: int
    world_size: int
    tokens_per_step: int
    losses: tuple[float, ...]
    """Mean cross-entropy per token in nats, before each step's update."""
    gradient_norms: tuple[float, ...]
    """Norm of the whole model's gradient before clipping, per step."""
    step_s: tuple[float, ...]
    evaluations: dict[int, float]
    """Finished steps → mean cross-entropy per token of the held-out text."""
    tokens_per_s: float | None = None
    """All tokens over the seconds from the first step's begin to the last one's end."""
    samples: dict[int, tuple[str, ...]] = {}
    """Finished steps → the model's continuation of each prompt."""

    def figures(self, steps: int, data: tuple[str, ...]) -> RunFigures:
        """Return the figures for the model card.

        Args:
            steps: finished.
            data: what became of the data, in lines.
        """
        loss = self.losses[-1] if self.losses else None
        return RunFigures(
            steps=steps,
            data=data,
            loss=loss if loss is not None and isfinite(loss) else None,
            evaluations=last_and_lowest(self.evaluations),
            tokens_per_s=self.tokens_per_s,
            world_size=self.world_size,
        )
