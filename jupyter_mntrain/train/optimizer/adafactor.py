"""Adafactor that never makes the host wait for the device (arXiv 1804.04235)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.linalg import vector_norm

from jupyter_mntrain.train.optimizer.split import Split


class Adafactor(torch.optim.Adafactor):
    """torch's Adafactor, with norms that stay on the device.

    torch's own reads two norms of each parameter on the host, in every step, and makes the whole
    estimate of the second moment; here the gradient is scaled in place by its rows and columns.
    ``step`` in the state is on the parameter's device. Gradients are used up.

    Args:
        split: how the parameters are split over ranks: what is of a whole one is added up, for all
            of them together, twice in a step. All ranks have gradients of the same ones.
        names: of the parameters, where they are split.
    """

    def __init__(
        self,
        params: Any,
        *,
        split: Split | None = None,
        names: Mapping[torch.Tensor, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, **options)
        self._split = split
        self._names = names or {}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient.

        Raises:
            ValueError: there is a closure.
        """
        if closure is not None:
            raise ValueError("Adafactor.step() takes no closure here")
        with torch.no_grad():
            updates = (
                _update(one, one.grad, self.state[one], group, self._rows(one))
                for group in self.param_groups
                for one in group["params"]
                if one.grad is not None
            )
            if self._split is None:
                for update in updates:
                    for _ in update:
                        pass
                return
            for sums in zip(*updates, strict=True):
                self._split.add_up([one for some in sums for one in some])

    def _rows(self, parameter: torch.Tensor) -> int:
        """Of the whole parameter."""
        return len(parameter) if self._split is None else self._split.whole[self._names[parameter]]


def _update(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    state: dict[str, Any],
    group: dict[str, Any],
    all_rows: int,
) -> Iterator[list[torch.Tensor]]:
    """Update a parameter or some rows of it.

    Args:
        all_rows: of the whole one.

    Yields:
        Twice, what is to be added up in place over all ranks that have rows of it.
    """
    step, rate, (floor, least) = state["step"], group["lr"], group["eps"]
    is_matrix = gradient.ndim == 2
    step += 1
    fresh = (step ** group["beta2_decay"]).to(parameter.dtype)
    root = math.sqrt(all_rows * math.prod(parameter.shape[1:]))
    square = vector_norm(parameter, dtype=torch.float32).square_()
    sums = [square]
    if gradient.ndim > 1:
        rows, columns = state["row_var"], state["col_var"]
        # As means of squares, without a tensor of the gradient's size.
        norm = vector_norm(gradient, dim=-1, keepdim=True)
        rows.lerp_(norm.square_().div_(gradient.shape[-1]), fresh)
        new = vector_norm(gradient, dim=-2, keepdim=True).square_()
        mean = rows.sum(dim=-2, keepdim=True)
        if is_matrix:
            sums += [new, mean]
    yield sums
    alpha = (square.sqrt() / root).clamp(min=least) * step.rsqrt().clamp(max=rate)
    parameter.mul_(1 - rate * group["weight_decay"])
    if gradient.ndim > 1:
        height = all_rows if is_matrix else gradient.shape[-2]
        columns.lerp_(new.div_(height), fresh)
        mean.div_(height).clamp_(min=floor)
        gradient.mul_((rows / mean).clamp_(min=floor**2).rsqrt_())
        gradient.mul_(columns.clamp(min=floor**2).rsqrt_())
    else:
        known = state["variance"].lerp_(gradient.square(), fresh)
        gradient.mul_(known.clamp(min=floor**2).rsqrt_())
    square = vector_norm(gradient, dtype=torch.float32).square_()
    yield [square]
    norm = square.sqrt() / (root * group["d"])
    parameter.sub_(gradient.mul_(alpha / norm.clamp(min=1)))
