"""Outer optimizer: what replicas that meet rarely have in common, updated at each meeting.

DiLoCo (arXiv 2311.08105): the difference between the weights of the last meeting and those that a
replica has now is its gradient, and SGD with Nesterov momentum takes the mean of all replicas'.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

import torch
from torch import nn

from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.parts.data_parallel import DataParallelSection
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.pipeline.replicas import BUCKET_BYTES

_LAYER = re.compile(r"\.(\d+)\.")
"""The number of a layer, in the name of a parameter."""

_FLOAT32 = torch.float32.itemsize


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
        for name, part in self.parts(flat).items():
            own = kept[name].detach()
            # In place: of an embedding there would be several gigabytes otherwise.
            part.copy_(self.weights[name].detach().to(own.dtype)).sub_(own)
        return flat

    def parts(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of what is flat, like the weights and by their names."""
        held = self.weights
        parts = torch.split(flat, [one.numel() for one in held.values()])
        return {name: part.view_as(held[name]) for name, part in zip(held, parts, strict=True)}

    def joined(self, parts: Mapping[str, torch.Tensor], before: str) -> torch.Tensor:
        """What is like the weights, flat.

        Args:
            parts: by a weight's name with ``before`` in front.
        """
        return torch.cat([parts[f"{before}{name}"].reshape(-1) for name in self.weights])

    def step(self, mean: torch.Tensor) -> None:
        """Update the weights by the mean of all replicas' differences."""
        for name, part in self.parts(mean.to("cpu")).items():
            self.weights[name].grad = part
        self._sgd.step()
        for one in self.weights.values():
            one.grad = None


def outer_fragments(
    section: DataParallelSection,
    kept: Mapping[str, torch.Tensor],
    counted_once: Container[str],
) -> Sequence[Sequence[OuterBucket]]:
    """Make the buckets of a replica's parameters, with the weights that it has now, by fragment.

    Layers are dealt to fragments in turn, as in the paper of streaming DiLoCo, so that it depends
    on no split. Both copies of a tied embedding are in the first one.

    Args:
        counted_once: names of the parameters but for a tied copy.
    """
    dealt: list[dict[str, torch.Tensor]] = [{} for _ in range(section.sync_fragments)]
    for name, one in kept.items():
        layer = _LAYER.search(name)
        if layer is not None:
            dealt[int(layer.group(1)) % len(dealt)][name] = one
        else:
            is_last = name == HEAD and name in counted_once
            dealt[-1 if is_last else 0][name] = one
    return [
        [
            OuterBucket(section, {name: _copied(some[name]) for name in names})
            for names in by_size(some, lambda name: _FLOAT32 * kept[name].numel(), BUCKET_BYTES)
        ]
        for some in dealt
    ]


def _copied(weight: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().to("cpu", torch.float32, copy=True))
