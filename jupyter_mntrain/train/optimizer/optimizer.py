"""Optimizer of a rank: its own parameters, clipped by the whole model's gradient norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_

from jupyter_mntrain.recipe.learning_rate import learning_rate_ratio
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD
from jupyter_mntrain.train.optimizer.fused_backward import FusedBackward
from jupyter_mntrain.train.optimizer.precision import MasterUpdate, RoundedUpdate, Update


class Optimizer:
    """Optimizer of one rank; the learning rate is the same on all.

    Collective: every rank must construct one at the same time.

    Args:
        parameters: this rank's, by name.
        counted_once: those whose gradients count in the global norm: all but a tied copy.
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
        everybody = _of_all_ranks(list(counted_once))
        self._count = len(everybody)
        places = [everybody.index(name) for name in counted_once]
        self._places = torch.tensor(places, dtype=torch.int64)
        self._updates = _updates(recipe, parameters, is_tied=HEAD not in counted_once)
        self._step = 0
        self._fused: FusedBackward | None = None
        if recipe.memory.fused_backward:
            backwards = recipe.train.accumulation * recipe.pipeline.microbatches
            self._fused = FusedBackward(parameters, backwards, self._update_one)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        ratio = learning_rate_ratio(
            self._step,
            steps=self._recipe.train.steps,
            warmup_steps=self._recipe.warmup_steps,
            min_ratio=self._recipe.optimizer.min_ratio,
        )
        return self._recipe.optimizer.learning_rate * ratio

    def state(self) -> dict[str, torch.Tensor]:
        """Optimizer state by ``exp_avg/NAME`` and the like."""
        updates = self._updates.values()
        return {name: one for update in updates for name, one in update.state().items()}

    def resume_after(self, step: int) -> None:
        """Continue after ``step`` steps; the tensors of :meth:`state` must be restored, too."""
        self._step = step

    def gradient_squares(self) -> torch.Tensor:
        """Squared norms of this rank's gradients that count: float64, with a place for each
        parameter of the whole model.

        Added up by name, and not rank by rank, their sum is the same to the last bit on any number
        of ranks.
        """
        if self._fused is not None:
            own = [one for one in (self._fused.take_square(),) if one is not None]
            return _placed(own, self._places[: len(own)], self._count)
        gradients = [one.grad for one in self._counted if one.grad is not None]
        # As get_total_norm does: a few kernels for all of them. In float32: bfloat16 would round
        # each norm, and so clipping would depend on how a gradient is split over shards.
        norms = torch._foreach_norm(gradients, dtype=torch.float32) if gradients else []  # noqa: SLF001
        places = self._places
        if len(gradients) < len(places):
            places = places[[one.grad is not None for one in self._counted]]
        return _placed([norm.double().square() for norm in norms], places, self._count)

    def total(
        self, loss: torch.Tensor, squares: torch.Tensor, votes: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sum loss, gradient norm and votes over all ranks, in one small all-reduce.

        Args:
            loss: scalar, zero on all ranks but the last stage's.
            squares: this rank's :meth:`gradient_squares`.
            votes: this rank's, see :meth:`Checkpointing.votes`.

        Returns:
            Loss and gradient norm of the whole model, and the sum of each vote.
        """
        cast = torch.tensor(votes, dtype=torch.float64, device=squares.device)
        sums = torch.cat([loss.double().reshape(1), squares, cast])
        dist.all_reduce(sums)
        # Each replica has counted the same gradient.
        square = sums[1 : 1 + self._count].sum() / self._recipe.data_parallel.replicas
        return sums[0], square.sqrt(), sums[1 + self._count :]

    def update(self, norm: torch.Tensor) -> None:
        """Clip by the global ``norm``, update the parameters, and clear the gradients.

        With a fused backward pass they have been updated already, unclipped.
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


def _of_all_ranks(mine: Sequence[str]) -> list[str]:
    """Names of all ranks' parameters, in an order that does not depend on the ranks."""
    if not dist.is_initialized():
        return sorted(mine)
    names: list[Sequence[str]] = [()] * dist.get_world_size()
    dist.all_gather_object(names, mine)
    return sorted({name for some in names for name in some})


def _placed(values: Sequence[torch.Tensor], places: torch.Tensor, count: int) -> torch.Tensor:
    """Scalars in their places of a vector of zeros."""
    if not values:
        return torch.zeros(count, dtype=torch.float64)
    together = torch.stack([*values])
    vector = torch.zeros(count, dtype=torch.float64, device=together.device)
    return vector.index_copy(0, places.to(together.device), together)


def _updates(
    recipe: Recipe, parameters: Mapping[str, nn.Parameter], *, is_tied: bool
) -> dict[str, Update]:
    """Updates by parameter name, or a single one where parameters are updated together."""
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
            # Both copies of a tied embedding must be rounded alike.
            drawn_as=EMBEDDING if is_tied and name == HEAD else name,
        )
        for name, one in parameters.items()
    }
