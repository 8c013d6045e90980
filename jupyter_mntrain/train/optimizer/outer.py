"""Outer optimizer: what replicas that meet rarely have in common, updated at each meeting.

DiLoCo (arXiv 2311.08105): the difference between the weights of the last meeting and those that a
replica has now is its gradient, and SGD with Nesterov momentum takes the mean of all replicas'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from jupyter_mntrain.recipe.parts.data_parallel import DataParallelSection
from jupyter_mntrain.train.model.weight_files import by_size
from jupyter_mntrain.train.pipeline.replicas import BUCKET_BYTES


class OuterBucket:
    """Parameters that replicas send at once.

    They are in float32, whatever the model's dtype, and in host memory: between two meetings a GPU
    has no use for them.

    Args:
        weights: of the last meeting, by name; updated in place.
    """

    def __init__(self, section: DataParallelSection, weights: Mapping[str, nn.Parameter]) -> None:
        self.weights = weights
        self._sgd = torch.optim.SGD(
            list(weights.values()),
            lr=section.outer_learning_rate,
            momentum=section.outer_momentum,
            nesterov=section.outer_momentum > 0,
        )
        if section.outer_momentum:
            # SGD makes it in the first step, which is too late for a run that resumes.
            for one in weights.values():
                self._sgd.state[one]["momentum_buffer"] = torch.zeros_like(one)

    def momentum(self) -> dict[str, torch.Tensor]:
        """By parameter; empty without."""
        state = self._sgd.state
        return {
            name: state[one]["momentum_buffer"]
            for name, one in self.weights.items()
            if "momentum_buffer" in state[one]
        }

    def learned(self, kept: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The difference of the last meeting's weights and a replica's: flat, float32, on its
        device.

        Args:
            kept: the replica's, by name, in the dtype in which it keeps them: what it began with is
                rounded to that.
        """
        sizes = [one.numel() for one in self.weights.values()]
        flat = torch.empty(sum(sizes), device=next(iter(kept.values())).device)
        for part, (name, one) in zip(torch.split(flat, sizes), self.weights.items(), strict=True):
            own = kept[name].detach()
            # In place: of an embedding there would be several gigabytes otherwise.
            part.view_as(own).copy_(one.detach().to(own.dtype)).sub_(own)
        return flat

    def step(self, mean: torch.Tensor) -> None:
        """Update the weights by the mean of all replicas' differences."""
        held = list(self.weights.values())
        parts = torch.split(mean.to("cpu"), [one.numel() for one in held])
        for one, part in zip(held, parts, strict=True):
            one.grad = part.view_as(one)
        self._sgd.step()
        for one in held:
            one.grad = None


def outer_buckets(
    section: DataParallelSection, kept: Mapping[str, torch.Tensor]
) -> Sequence[OuterBucket]:
    """Make the buckets of a replica's parameters, with the weights that it has now."""
    size_of = {name: one.numel() * torch.float32.itemsize for name, one in kept.items()}
    return [
        OuterBucket(section, {name: _copied(kept[name]) for name in names})
        for names in by_size(kept, size_of.__getitem__, BUCKET_BYTES)
    ]


def _copied(weight: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().to("cpu", torch.float32, copy=True))
