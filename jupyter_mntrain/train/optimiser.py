"""AdamW over a rank's own parameters, clipped by the norm of the whole model's gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR

from jupyter_mntrain.train.sections import Recipe


def learning_rate_ratio(step: int, *, steps: int, warmup_steps: int, min_ratio: float) -> float:
    """Share of the full learning rate at ``step``, from 0: linear up, then half a cosine down.

    The first step already moves, the last one is at ``min_ratio``.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    span = max(1, steps - 1 - warmup_steps)
    progress = min(1.0, (step - warmup_steps) / span)
    return min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Optimiser:
    """One per rank; the same learning rate everywhere.

    Args:
        parameters: this rank's, by name.
        counted_once: those whose gradient belongs into the global norm.
    """

    def __init__(
        self,
        recipe: Recipe,
        parameters: Mapping[str, nn.Parameter],
        counted_once: Mapping[str, nn.Parameter],
    ) -> None:
        section = recipe.optimizer
        matrices = [p for p in parameters.values() if p.ndim > 1]
        vectors = [p for p in parameters.values() if p.ndim <= 1]
        self._parameters = [*matrices, *vectors]
        self._counted = list(counted_once.values())
        self._clip_norm = section.clip_norm
        # Norms and biases are not decayed: pulling a norm's weight to zero is no regulariser.
        self._adamw = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": section.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=section.learning_rate,
            betas=section.betas,
            eps=section.epsilon,
            fused=True,
        )
        self._schedule = LambdaLR(
            self._adamw,
            lambda step: learning_rate_ratio(
                step,
                steps=recipe.train.steps,
                warmup_steps=recipe.warmup_steps,
                min_ratio=section.min_ratio,
            ),
        )

    @property
    def learning_rate(self) -> float:
        return float(self._schedule.get_last_lr()[0])

    def gradient_square(self) -> torch.Tensor:
        """Squared norm of the gradients this rank accounts for: a float64 scalar."""
        gradients = [p.grad for p in self._counted if p.grad is not None]
        return get_total_norm(gradients).double().square()

    def total(self, loss: torch.Tensor, square: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and gradient norm of the whole model, on every rank, by one small all-reduce.

        Args:
            loss: scalar, zero on all ranks but the last stage's.
            square: this rank's :meth:`gradient_square`.
        """
        both = torch.stack([loss.double(), square])
        dist.all_reduce(both)
        return both[0], both[1].sqrt()

    def update(self, norm: torch.Tensor) -> None:
        """Clip to the global ``norm``, step, and forget the gradients."""
        if self._clip_norm:
            clip_grads_with_norm_(self._parameters, self._clip_norm, norm.float())
        self._adamw.step()
        self._schedule.step()
        self._adamw.zero_grad()
