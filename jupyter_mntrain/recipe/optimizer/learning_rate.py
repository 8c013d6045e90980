"""Learning rate over the steps of a training."""

from __future__ import annotations

import math


def learning_rate_ratio(step: int, *, steps: int, warmup_steps: int, min_ratio: float) -> float:
    """Ratio to the full learning rate at ``step``, from 0: linear warm-up, then half a cosine.

    It is above 0 at the first step, and ``min_ratio`` at the last.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    span = max(1, steps - 1 - warmup_steps)
    progress = min(1.0, (step - warmup_steps) / span)
    return min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress))
