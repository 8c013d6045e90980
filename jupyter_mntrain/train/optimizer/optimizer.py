"""Optimizer of a rank: its own parameters, clipped by the whole model's gradient norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD
from jupyter_mntrain.train.optimizer.fused_backward import FusedBackward
from jupyter_mntrain.train.optimizer.precision import MasterUpdate, RoundedUpdate, Update


def learning_rate_ratio(step: int, *, steps: int, warmup_steps: int, min_ratio: float) -> float:
    """Share of the full learning rate at ``step``, from 0: linear up, then half a cosine down.

    The first step already moves, the last one is at ``min_ratio``.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    span = max(1, steps - 1 - warmup_steps)
    progress = min(1.0, (step - warmup_steps) / span)
    return min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Optimizer:
    """One per rank; the same learning rate everywhere.

    Args:
        parameters: this rank's, by name.
        counted_once: those whose gradient belongs into the global norm: not a tied copy.
    """

    def __init__(
        self,
        recipe: Recipe,
        parameters: Mapping[str, nn.Parameter],
        counted_once: Mapping[str, nn.Parameter],
    ) -> None:
        self._recipe = recipe
        self._parameters = list(parameters.values())
        self._counted = list(counted_once.values())
        self._updates = _updates(recipe, parameters, is_tied=HEAD not in counted_once)
        self._step = 0
        self._fused: FusedBackward | None = None
        if recipe.memory.fused_backward:
            backwards = recipe.train.accumulation * recipe.pipeline.microbatches
            self._fused = FusedBackward(parameters, backwards, self._update_one)

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
        """What it remembers of each parameter: ``exp_avg/NAME`` and so on."""
        updates = self._updates.values()
        return {name: one for update in updates for name, one in update.state().items()}

    def go_on(self, step: int) -> None:
        """As after ``step`` steps; what :meth:`state` has must be as it was then."""
        self._step = step

    def gradient_square(self) -> torch.Tensor:
        """Squared norm of the gradients this rank accounts for: a float64 scalar."""
        square = None if self._fused is None else self._fused.take_square()
        if square is not None:
            return square
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
        # Every replica has the same gradient, and has counted it.
        square = sums[1] / self._recipe.data_parallel.replicas
        return sums[0], square.sqrt(), sums[2:]

    def update(self, norm: torch.Tensor) -> None:
        """Clip to the global ``norm``, step, and forget the gradients.

        With a fused backward pass all that has been done, but for the clipping.
        """
        clip_norm = self._recipe.optimizer.clip_norm
        if clip_norm:
            clip_grads_with_norm_(self._parameters, clip_norm, norm.float())
        if self._fused is None:
            for name in self._updates:
                self._update_one(name)
        self._step += 1

    def _update_one(self, name: str) -> None:
        self._updates[name].step(self.learning_rate, self._step)


def _updates(
    recipe: Recipe, parameters: Mapping[str, nn.Parameter], *, is_tied: bool
) -> dict[str, Update]:
    """By the parameter they are of, or one of all where nothing is done one by one."""
    section = recipe.optimizer
    match recipe.precision:
        case "plain" if not recipe.memory.fused_backward:
            return {"": Update(section, parameters)} if parameters else {}
        case "plain":
            return {name: Update(section, {name: one}) for name, one in parameters.items()}
        case "float32-master":
            return {name: MasterUpdate(section, name, one) for name, one in parameters.items()}
    return {
        name: RoundedUpdate(
            section,
            name,
            one,
            seed=recipe.train.seed,
            # Both copies of a tied embedding are rounded alike.
            drawn_as=EMBEDDING if is_tied and name == HEAD else name,
        )
        for name, one in parameters.items()
    }
