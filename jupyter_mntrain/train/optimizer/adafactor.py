"""Adafactor that never makes the host wait for the device (arXiv 1804.04235)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.linalg import vector_norm


class Adafactor(torch.optim.Adafactor):
    """torch's Adafactor, with norms that stay on the device.

    torch's own reads two norms of each parameter on the host, in every step, and makes the whole
    estimate of the second moment; here the gradient is scaled in place by its rows and columns.
    ``step`` in the state is on the parameter's device. Gradients are used up.
    """

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient.

        Raises:
            ValueError: there is a closure.
        """
        if closure is not None:
            raise ValueError("Adafactor.step() takes no closure here")
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        _update(parameter, parameter.grad, self.state[parameter], group)


def _update(
    parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
) -> None:
    step, rate, (floor, least) = state["step"], group["lr"], group["eps"]
    step += 1
    fresh = (step ** group["beta2_decay"]).to(parameter.dtype)
    root = math.sqrt(parameter.numel())
    size = vector_norm(parameter, dtype=torch.float32) / root
    alpha = size.clamp(min=least) * step.rsqrt().clamp(max=rate)
    parameter.mul_(1 - rate * group["weight_decay"])
    if gradient.ndim > 1:
        rows, columns = state["row_var"], state["col_var"]
        for known, dim in ((rows, -1), (columns, -2)):
            # As a mean of squares, without a tensor of the gradient's size.
            norm = vector_norm(gradient, dim=dim, keepdim=True)
            known.lerp_(norm.square_().div_(gradient.shape[dim]), fresh)
        mean = rows.mean(dim=-2, keepdim=True).clamp_(min=floor)
        gradient.mul_((rows / mean).clamp_(min=floor**2).rsqrt_())
        gradient.mul_(columns.clamp(min=floor**2).rsqrt_())
    else:
        known = state["variance"].lerp_(gradient.square(), fresh)
        gradient.mul_(known.clamp(min=floor**2).rsqrt_())
    norm = vector_norm(gradient, dtype=torch.float32) / (root * group["d"])
    parameter.sub_(gradient.mul_(alpha / norm.clamp(min=1)))
