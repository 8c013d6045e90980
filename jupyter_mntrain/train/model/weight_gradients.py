"""Weight gradients: computes the gradients of linear layers' weights after everything else.

A backward pass sends the gradient of its stage's input to the stage before, which waits for it; for
the gradients of weights, nobody waits. torch can split any backward pass, but walks the graph twice
for that, which took 24 % more computing (measured). Here autograd computes all in one pass but the
matrix products of ``nn.Linear`` weights: their two factors are kept, and multiplied later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


class _Factors(NamedTuple):
    """The factors of a weight gradient: input (…, in) and output gradient (…, out)."""

    layer: nn.Linear
    given: torch.Tensor
    gradient: torch.Tensor


class WeightGradients:
    """Deferred gradients of linear layers' weights, computed when the schedule asks for them.

    Args:
        module: its ``nn.Linear`` that are trained are changed in place; each is called at most
            once in a forward pass.

    Attributes:
        are_deferred: otherwise autograd computes them with all others. Set between two steps.
    """

    def __init__(self, module: nn.Module) -> None:
        self.are_deferred = False
        self._waiting: list[_Factors] = []
        for layer in module.modules():
            if isinstance(layer, nn.Linear) and layer.weight.requires_grad:
                layer.forward = partial(self._forward, layer)  # type: ignore[method-assign]

    def build(self) -> Callable[[], None]:
        """Return a function that computes those of the last backward pass (``dw_builder``)."""
        waiting, self._waiting = self._waiting, []
        return partial(_compute, waiting)

    def keep(self, layer: nn.Linear, given: torch.Tensor, gradient: torch.Tensor) -> None:
        """Keep the two factors of the gradient of a layer's weight."""
        self._waiting.append(_Factors(layer, given, gradient))

    def _forward(self, layer: nn.Linear, given: torch.Tensor) -> torch.Tensor:
        if not (self.are_deferred and torch.is_grad_enabled() and given.requires_grad):
            return linear(given, layer.weight, layer.bias)
        # Detached: autograd would call the weight's hooks, without a gradient.
        arguments = (given, layer.weight.detach(), layer.bias, layer, self)
        output: torch.Tensor = _PutOff.apply(*arguments)  # type: ignore[no-untyped-call]
        return output


class _PutOff(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        given: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: nn.Linear,
        gradients: WeightGradients,
    ) -> torch.Tensor:
        context.save_for_backward(given, weight)
        context.layer, context.gradients = layer, gradients
        return linear(given, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(
        context: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, None, torch.Tensor | None, None, None]:
        given, weight = context.saved_tensors
        context.gradients.keep(context.layer, given.detach(), gradient)
        of_input = gradient @ weight if context.needs_input_grad[0] else None
        of_bias = gradient.flatten(0, -2).sum(0) if context.needs_input_grad[2] else None
        return of_input, None, of_bias, None, None


def _compute(waiting: list[_Factors]) -> None:
    with torch.no_grad():
        while waiting:
            layer, given, gradient = waiting.pop()
            product = gradient.flatten(0, -2).T @ given.flatten(0, -2)
            # As autograd itself would add it: in the gradient's dtype, with hooks that follow.
            torch.autograd.backward(layer.weight, product)
