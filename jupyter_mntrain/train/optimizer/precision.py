"""Weight precision between steps: as is, with a float32 master copy, or stochastically rounded.

A bfloat16 has 8 significant bits, so rounding to nearest loses updates smaller than 1/256 of a
weight: most of late training. A float32 copy keeps them; stochastic rounding keeps them on average
(arXiv 2010.06192).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn

from jupyter_mntrain.recipe.sections import OptimizerSection
from jupyter_mntrain.train.optimizer.algorithms import first_state, make_optimizer


class Update:
    """One optimizer over parameters as they are, with its state from the start.

    Args:
        parameters: by name.
        targets: what the optimizer updates instead, by the same names.
        averages: dtype of AdamW's averages; by default the parameter's.
    """

    def __init__(
        self,
        section: OptimizerSection,
        parameters: Mapping[str, nn.Parameter],
        *,
        targets: Mapping[str, nn.Parameter] | None = None,
        averages: torch.dtype | None = None,
    ) -> None:
        self._parameters = dict(parameters)
        self._targets = self._parameters if targets is None else targets
        self._optimizer = make_optimizer(section, list(self._targets.values()))
        for name, target in self._targets.items():
            dtype = averages or parameters[name].dtype
            self._optimizer.state[target] = first_state(section.kind, target, dtype)

    def step(self, learning_rate: float, step: int) -> None:
        """Update the parameters by their gradients, and clear those.

        Args:
            step: counted from 0.
        """
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        self._apply(step)
        for parameter in self._parameters.values():
            parameter.grad = None

    def state(self) -> dict[str, torch.Tensor]:
        """State tensors by ``exp_avg/NAME`` and the like; writing into them restores the state."""
        return {
            f"{kind}{part}/{name}": tensor
            for name, target in self._targets.items()
            for kind, value in self._optimizer.state[target].items()
            for part, tensor in _plain(value).items()
        }

    def _apply(self, step: int) -> None:  # noqa: ARG002 - rounding needs it
        self._optimizer.step()


class MasterUpdate(Update):
    """Update of one parameter through a float32 master copy of it."""

    def __init__(self, section: OptimizerSection, name: str, parameter: nn.Parameter) -> None:
        self._name, self._parameter = name, parameter
        self._master = nn.Parameter(parameter.detach().float())
        super().__init__(
            section, {name: parameter}, targets={name: self._master}, averages=torch.float32
        )

    def state(self) -> dict[str, torch.Tensor]:
        return super().state() | {f"master/{self._name}": self._master.detach()}

    @torch.no_grad()
    def _apply(self, step: int) -> None:
        gradient = self._parameter.grad
        self._master.grad = None if gradient is None else gradient.float()
        super()._apply(step)
        self._master.grad = None
        self._parameter.copy_(self._master)


class RoundedUpdate(Update):
    """Update of one parameter in float32, with the result rounded stochastically.

    AdamW's averages are rounded the same way: to nearest, they would not move either.

    Args:
        drawn_as: seeds the rounding together with the step, so that it is the same on any rank.
    """

    def __init__(
        self,
        section: OptimizerSection,
        name: str,
        parameter: nn.Parameter,
        *,
        seed: int,
        drawn_as: str,
    ) -> None:
        self._seed = seed
        self._drawn_as = drawn_as
        self._parameter = parameter
        self._exact = nn.Parameter(parameter.detach().float())
        super().__init__(section, {name: parameter}, targets={name: self._exact})
        self._free()

    def _free(self) -> None:
        """Free the float32 copy between steps."""
        self._exact.grad = None
        self._exact.data = torch.empty(0, device=self._exact.device)

    @torch.no_grad()
    def _apply(self, step: int) -> None:
        parameter, exact = self._parameter, self._exact
        if parameter.grad is None:
            return
        exact.data = parameter.float()
        exact.grad = parameter.grad.float()
        state = self._optimizer.state[exact]
        rounded = {k: one for k, one in state.items() if one.dtype == torch.bfloat16}
        state.update({kind: one.float() for kind, one in rounded.items()})
        super()._apply(step)
        generator = self._generator(step, parameter.device)
        round_stochastically(parameter, exact, generator)
        for kind, one in rounded.items():
            round_stochastically(one, state[kind], generator)
            state[kind] = one
        self._free()

    def _generator(self, step: int, device: torch.device) -> torch.Generator:
        digest = hashlib.sha256(f"{self._seed}\0{step}\0{self._drawn_as}".encode()).digest()
        return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def round_stochastically(
    target: torch.Tensor, exact: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Write float32 ``exact`` into bfloat16 ``target``, correct in expectation.

    A bfloat16 is a float32 without its lower 16 bits: adding a random number below 2^16 carries
    with a probability proportional to them.
    """
    noise = torch.randint(
        1 << 16, exact.shape, dtype=torch.int32, device=exact.device, generator=generator
    )
    carried = ((exact.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32)
    return target.copy_(torch.where(exact.isfinite(), carried, exact))


def _plain(value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The plain tensors of a quantized one, by suffix; of a plain one, itself."""
    if hasattr(value, "__tensor_flatten__"):
        parts, _ = value.__tensor_flatten__()
        return {f".{part}": getattr(value, part) for part in parts}
    return {"": value}
