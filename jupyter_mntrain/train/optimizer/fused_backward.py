"""Fused backward: updates a parameter as soon as its gradient is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn


class FusedBackward:
    """Calls ``update`` once per step and parameter, when its gradient is complete.

    Args:
        backwards: number of backward passes per step that add to each gradient.
        update: takes the parameter's name; must clear its gradient.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        backwards: int,
        update: Callable[[str], None],
    ) -> None:
        self._backwards = backwards
        self._update = update
        self._done = dict.fromkeys(parameters, 0)
        self._square: torch.Tensor | None = None
        for name, parameter in parameters.items():
            watched: Any = parameter
            watched.register_post_accumulate_grad_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def added(parameter: torch.Tensor) -> None:
            self._done[name] += 1
            if self._done[name] < self._backwards or parameter.grad is None:
                return
            self._done[name] = 0
            square = parameter.grad.norm(dtype=torch.float64).square()
            self._square = square if self._square is None else self._square + square
            self._update(name)

        return added

    def take_square(self) -> torch.Tensor | None:
        """Return and reset the squared norm of the step's gradients."""
        square, self._square = self._square, None
        return square
