"""The optimizer of a rank: updates its parameters, clipped by the whole model's gradient norm."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_

from jupyter_mntrain.families import embedding_weights
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.learning_rate import ratio_at
from jupyter_mntrain.recipe.memory import FLOAT32, UPDATED_AT_ONCE_BYTES
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD
from jupyter_mntrain.train.optimizer.algorithms import Split
from jupyter_mntrain.train.optimizer.precision import MasterUpdate, RoundedUpdate, Update

# Fused backward: updates a parameter as soon as its gradient is complete.


@dataclass
class FusedBackward:
    """Calls ``update`` once per step and parameter, when its gradient is complete.

    Args:
        backwards: number of backward passes per step that add to each gradient.
        update: takes the parameter's name; must clear its gradient.
    """

    parameters: Mapping[str, nn.Parameter]
    backwards: int
    update: Callable[[str], None]
    _square: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self._done = dict.fromkeys(self.parameters, 0)
        for name, parameter in self.parameters.items():
            watched: Any = parameter
            watched.register_post_accumulate_grad_hook(partial(self._added, name))

    def _added(self, name: str, parameter: torch.Tensor) -> None:
        self._done[name] += 1
        if self._done[name] < self.backwards or parameter.grad is None:
            return
        self._done[name] = 0
        square = parameter.grad.norm(dtype=torch.float64).square()
        self._square = square if self._square is None else self._square + square
        self.update(name)

    def take_square(self) -> torch.Tensor | None:
        """Return and reset the squared norm of the step's gradients."""
        square, self._square = self._square, None
        return square


CACHED_BYTES = 1 << 20
"""Float32 bytes that a processor casts and then updates faster than twice as many (measured)."""


class Optimizer:
    """The optimizer of one rank; the learning rate is the same on all.

    Collective: every rank must construct one at the same time.

    Args:
        recipe: its learning rate, schedule and clipping may be replaced between two steps.
        parameters: this rank's, by name.
        counted_once: those whose gradients count in the global norm: all but a tied copy.
        replica: the ranks of this replica, if replicas sync rarely: each has a norm of its own.
        split: how they are split over ranks, if they are.
    """

    def __init__(
        self,
        recipe: Recipe,
        parameters: Mapping[str, nn.Parameter],
        counted_once: Mapping[str, nn.Parameter],
        replica: dist.ProcessGroup | None = None,
        split: Split | None = None,
    ) -> None:
        self.recipe = recipe
        self._replica = replica
        self._replica_norm: torch.Tensor | None = None
        if recipe.optimizer.grad_dtype == "float32":
            for one in parameters.values():
                one.grad_dtype = torch.float32
        self._parameters = list(parameters.values())
        self._counted = list(counted_once.values())
        everybody = _of_all_ranks(list(counted_once))
        self._count = len(everybody)
        places = [everybody.index(name) for name in counted_once]
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        self._places = torch.tensor(places, dtype=torch.int64, device=device)
        self._zero = torch.zeros((), device=device)
        self._updates = _updates(recipe, parameters, split, is_tied=HEAD not in counted_once)
        self._step = 0
        self._fused: FusedBackward | None = None
        if recipe.memory.fused_backward:
            backwards = recipe.train.accumulation * recipe.microbatches
            by_name = dict(zip(parameters, self._updates, strict=True))
            self._fused = FusedBackward(
                parameters, backwards, lambda name: self._apply(by_name[name])
            )

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self.recipe.optimizer.learning_rate * ratio_at(self.recipe, self._step)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the optimizer state by ``exp_avg/NAME`` and the like."""
        return {name: one for update in self._updates for name, one in update.state().items()}

    def kept(self) -> dict[str, torch.Tensor]:
        """Return the weights in the precision of their storage between steps, by name.

        With master copies, that is float32.
        """
        return {name: one for update in self._updates for name, one in update.kept().items()}

    def renew(self) -> None:
        """Apply weights that were written to :meth:`kept`."""
        for update in self._updates:
            update.renew()

    def resume_after(self, step: int) -> None:
        """Continue after ``step`` steps; the tensors of :meth:`state` must be restored, too."""
        self._step = step

    def gradient_squares(self) -> torch.Tensor:
        """Return the squared norms of this rank's gradients that count.

        They are float64, with a place for each parameter of the whole model.

        Added up by name, and not rank by rank, their sum is the same to the last bit on any number
        of ranks.
        """
        vector = torch.zeros(self._count, dtype=torch.float64, device=self._zero.device)
        if self._fused is not None:
            square = self._fused.take_square()
            if square is not None:
                vector[:1] = square
            return vector
        gradients = [one.grad for one in self._counted if one.grad is not None]
        if not gradients:
            return vector
        # As get_total_norm does: a few kernels for all of them. In float32: bfloat16 would round
        # each norm, and so clipping would depend on how a gradient is split over shards.
        norms = iter(torch._foreach_norm(gradients, dtype=torch.float32))  # noqa: SLF001
        placed = [self._zero if one.grad is None else next(norms) for one in self._counted]
        return vector.index_copy(0, self._places, torch.stack(placed).double().square())

    def total(
        self, loss: torch.Tensor, squares: torch.Tensor, votes: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sum loss, gradient norm and votes over all ranks in one small all-reduce.

        Args:
            loss: scalar, zero on all ranks but the last stage's.
            squares: this rank's :meth:`gradient_squares`.
            votes: this rank's, see :meth:`Checkpointing.votes`.

        Returns:
            Loss and gradient norm of the whole model, and the sum of each vote. The norm is the
            mean of replicas that sync rarely.
        """
        if self._replica is not None:
            squares = self._mean_norm(squares, self._replica)
        # By value to kernels that fill: a tensor made from Python numbers waits for the GPU.
        device, dtype = squares.device, squares.dtype
        cast = [torch.full((1,), vote, dtype=dtype, device=device) for vote in votes]
        sums = torch.cat([loss.double().reshape(1), squares, *cast])
        dist.all_reduce(sums)
        loss, squares, counts = torch.split(sums, [1, len(squares), len(votes)])
        if self._replica is not None:
            return loss.squeeze(), squares.squeeze(), counts
        # Each replica has counted the same gradient.
        square = squares.sum() / self.recipe.data_parallel.replicas
        return loss.squeeze(), square.sqrt(), counts

    def skip(self) -> None:
        """Clear the gradients and leave the parameters unchanged; the learning rate advances."""
        for one in self._parameters:
            one.grad = None
        self._step += 1

    def _mean_norm(self, squares: torch.Tensor, replica: dist.ProcessGroup) -> torch.Tensor:
        """Sum the squares of a replica, and return this rank's part of the mean of all norms."""
        dist.all_reduce(squares, group=replica)
        norm = self._replica_norm = squares.sum().sqrt()
        return (norm / dist.get_world_size()).reshape(1)

    def update(self, norm: torch.Tensor) -> None:
        """Clip by the global ``norm``, update the parameters, and clear the gradients.

        A replica that syncs with others rarely clips by its own. With a fused backward pass they
        have been updated already, unclipped.
        """
        if self._replica_norm is not None:
            norm = self._replica_norm
        clip_norm = self.recipe.optimizer.clip_norm
        if clip_norm:
            clip_grads_with_norm_(self._parameters, clip_norm, norm.float(), foreach=True)
        if self._fused is None:
            for update in self._updates:
                self._apply(update)
        self._step += 1

    def _apply(self, update: Update) -> None:
        update.step(self.learning_rate, self._step)


def _of_all_ranks(mine: Sequence[str]) -> list[str]:
    """Return the names of all ranks' parameters, in an order that does not depend on the ranks."""
    if not dist.is_initialized():
        return sorted(mine)
    names: list[Sequence[str]] = [()] * dist.get_world_size()
    dist.all_gather_object(names, mine)
    return sorted({name for some in names for name in some})


def _updates(
    recipe: Recipe, parameters: Mapping[str, nn.Parameter], split: Split | None, *, is_tied: bool
) -> list[Update]:
    """Make the updates: one for all parameters, or several that each take a few.

    Several are needed with float32 copies, and one per parameter with a fused backward pass.
    """
    most = UPDATED_AT_ONCE_BYTES
    if recipe.memory.fused_backward:
        most = 1
    elif recipe.precision == "plain" and recipe.optimizer.grad_dtype == "auto":
        most = sys.maxsize
    elif all(one.device.type == "cpu" for one in parameters.values()):
        most = min(most, CACHED_BYTES)

    def size(name: str) -> int:
        one = parameters[name]
        return FLOAT32 * (one.numel() if split is None else split.largest(name, one))

    names = by_size(parameters, size, most)
    buckets = [{name: parameters[name] for name in some} for some in names]
    section = recipe.optimizer
    match recipe.precision:
        case "plain":
            return [Update(section, bucket, split=split) for bucket in buckets]
        case "float32-master":
            return [MasterUpdate(section, bucket, split) for bucket in buckets]
    # Both copies of a tied embedding must be rounded alike.
    both = (HEAD, *embedding_weights()) if is_tied else ()
    drawn_as = {name: EMBEDDING if name in both else name for name in parameters}
    seed = recipe.train.seed
    return [
        RoundedUpdate(section, bucket, seed=seed, drawn_as=drawn_as, split=split)
        for bucket in buckets
    ]
