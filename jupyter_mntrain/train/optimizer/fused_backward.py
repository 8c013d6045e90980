"""Fused backward: updates a parameter as soon as its gradient is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn


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
