"""Result of a run, as one of its ranks has it."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class TrainResult(Record, frozen=True):
    """Result of a run; losses and norms are the same on every rank."""

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
    samples: dict[int, tuple[str, ...]] = {}
    """Finished steps → the model's continuation of each prompt."""
