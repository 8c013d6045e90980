"""AdamW over a rank's own parameters, clipped by the norm of the whole model's gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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


ADAMW_STATE = ("step", "exp_avg", "exp_avg_sq")


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
        self._by_name = dict(parameters)
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
        self._recipe = recipe
        self._step = 0

    @property
    def learning_rate(self) -> float:
        """Of the step to come: it depends on nothing but which one that is."""
        ratio = learning_rate_ratio(
            self._step,
            steps=self._recipe.train.steps,
            warmup_steps=self._recipe.warmup_steps,
            min_ratio=self._recipe.optimizer.min_ratio,
        )
        return self._recipe.optimizer.learning_rate * ratio

    def state(self) -> dict[str, torch.Tensor]:
        """What AdamW remembers of each parameter: ``exp_avg/NAME`` and so on. Empty at first."""
        return {
            f"{kind}/{name}": value
            for name, parameter in self._by_name.items()
            for kind, value in self._adamw.state[parameter].items()
        }

    def state_names(self) -> list[str]:
        """Of what :meth:`state` has after the first step."""
        return [f"{kind}/{name}" for name in self._by_name for kind in ADAMW_STATE]

    def restore(self, state: Mapping[str, torch.Tensor], step: int) -> None:
        """Go on as after ``step`` steps.

        Args:
            state: everything :meth:`state_names` names.
        """
        for name, parameter in self._by_name.items():
            self._adamw.state[parameter] = {
                kind: state[f"{kind}/{name}"].to(parameter.device) for kind in ADAMW_STATE
            }
        self._step = step

    def gradient_square(self) -> torch.Tensor:
        """Squared norm of the gradients this rank accounts for: a float64 scalar."""
        gradients = [p.grad for p in self._counted if p.grad is not None]
        return get_total_norm(gradients).double().square()

    def total(
        self, loss: torch.Tensor, square: torch.Tensor, votes: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Loss and gradient norm of the whole model, on every rank, by one small all-reduce.

        Args:
            loss: scalar, zero on all ranks but the last stage's.
            square: this rank's :meth:`gradient_square`.
            votes: what else there is to agree on.

        Returns:
            Loss, norm, and the sum of each vote over all ranks.
        """
        cast = torch.tensor(votes, dtype=torch.float64, device=square.device)
        sums = torch.cat([torch.stack([loss.double(), square]), cast])
        dist.all_reduce(sums)
        return sums[0], sums[1].sqrt(), sums[2:]

    def update(self, norm: torch.Tensor) -> None:
        """Clip to the global ``norm``, step, and forget the gradients."""
        if self._clip_norm:
            clip_grads_with_norm_(self._parameters, self._clip_norm, norm.float())
        for group in self._adamw.param_groups:
            group["lr"] = self.learning_rate
        self._adamw.step()
        self._adamw.zero_grad()
        self._step += 1
