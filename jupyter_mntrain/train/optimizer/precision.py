"""Weight precision between steps: as is, with a float32 master copy, or stochastically rounded.

A bfloat16 has 8 significant bits, so rounding to nearest loses updates smaller than 1/256 of a
weight: most of late training. A float32 copy keeps them; stochastic rounding keeps them on average
(arXiv 2010.06192).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from jupyter_mntrain.recipe.sections import OptimizerSection
from jupyter_mntrain.train.optimizer.algorithms import first_state, make_optimizer
from jupyter_mntrain.train.optimizer.split import Split


class Update:
    """One optimizer over parameters as they are, with its state from the start.

    Args:
        parameters: by name.
        targets: what the optimizer updates instead, by the same names; by default, the parameters.
        averages: dtype of AdamW's averages; by default the parameter's.
        split: how they are split over ranks, if they are.
    """

    def __init__(
        self,
        section: OptimizerSection,
        parameters: Mapping[str, nn.Parameter],
        *,
        targets: Mapping[str, nn.Parameter] | None = None,
        averages: torch.dtype | None = None,
        split: Split | None = None,
    ) -> None:
        self._parameters = dict(parameters)
        if targets is None:
            # The same memory; unlike the parameters they take gradients of their own dtype.
            targets = {name: nn.Parameter(one.detach()) for name, one in parameters.items()}
        self._targets = targets
        self._optimizer = make_optimizer(section, self._targets, split)
        for name, target in self._targets.items():
            dtype = averages or parameters[name].dtype
            rows = None if split is None else split.whole[name]
            state = first_state(section.kind, target, dtype, all_rows=rows)
            self._optimizer.state[target] = state

    @torch.no_grad()
    def step(self, learning_rate: float, step: int) -> None:
        """Update the parameters by their gradients, and clear those.

        Args:
            step: counted from 0.
        """
        self._apply(learning_rate, step)

    def state(self) -> dict[str, torch.Tensor]:
        """State tensors by ``exp_avg/NAME`` and the like; writing into them restores the state."""
        return {
            f"{kind}{part}/{name}": tensor
            for name, target in self._targets.items()
            for kind, value in self._optimizer.state[target].items()
            for part, tensor in _plain(value).items()
        }

    def kept(self) -> dict[str, torch.Tensor]:
        """The weights as exactly as they are kept between steps, by name; to be written, too."""
        return {name: one.detach() for name, one in self._parameters.items()}

    def renew(self) -> None:
        """Take what was written to :meth:`kept`."""

    def _apply(self, learning_rate: float, step: int) -> None:  # noqa: ARG002 - rounding needs it
        self._optimize(learning_rate, self._take_gradients())

    def _take_gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients in the targets' dtype, and free those of the parameters."""
        taken, narrow = {}, []
        for name, target in self._targets.items():
            gradient = self._parameters[name].grad
            if gradient is None:
                continue
            if gradient.dtype == target.dtype:
                taken[name] = gradient
            else:
                taken[name] = torch.empty_like(gradient, dtype=target.dtype)
                narrow.append((taken[name], gradient))
        if narrow:
            # One cast for all of them.
            wide, given = zip(*narrow, strict=True)
            torch._foreach_copy_([*wide], [*given])
        for parameter in self._parameters.values():
            parameter.grad = None
        return taken

    def _optimize(self, learning_rate: float, gradients: Mapping[str, torch.Tensor]) -> None:
        """Update the targets by gradients of their dtype."""
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        for name, gradient in gradients.items():
            self._targets[name].grad = gradient
        self._optimizer.step()
        for target in self._targets.values():
            target.grad = None


class MasterUpdate(Update):
    """Update of parameters through lasting float32 copies of them."""

    def __init__(
        self,
        section: OptimizerSection,
        parameters: Mapping[str, nn.Parameter],
        split: Split | None = None,
    ) -> None:
        masters = {name: nn.Parameter(one.detach().float()) for name, one in parameters.items()}
        super().__init__(section, parameters, targets=masters, averages=torch.float32, split=split)

    def state(self) -> dict[str, torch.Tensor]:
        masters = {f"master/{name}": one.detach() for name, one in self._targets.items()}
        return super().state() | masters

    def kept(self) -> dict[str, torch.Tensor]:
        return {name: one.detach() for name, one in self._targets.items()}

    @torch.no_grad()
    def renew(self) -> None:
        torch._foreach_copy_([*self._parameters.values()], [*self._targets.values()])

    def _apply(self, learning_rate: float, step: int) -> None:
        super()._apply(learning_rate, step)
        self.renew()


def _plain(value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The plain tensors of a quantized one, by suffix; of a plain one, itself."""
    if hasattr(value, "__tensor_flatten__"):
        parts, _ = value.__tensor_flatten__()
        return {f".{part}": getattr(value, part) for part in parts}
    return {"": value}
