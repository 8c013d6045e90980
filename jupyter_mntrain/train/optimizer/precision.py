"""Weight precision between steps: as is, with a float32 master copy, or stochastically rounded.

A bfloat16 has 8 significant bits: an update of less than 1/256 of a weight is lost when it is
rounded to nearest, and with it most of what late training does. Either a float32 copy remembers
it, or rounding up or down by chance keeps it on average (arXiv 2010.06192).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn

from jupyter_mntrain.recipe.sections import OptimizerSection
from jupyter_mntrain.train.optimizer.algorithms import first_state, make_optimizer


class Update:
    """One optimizer over some parameters as they are, with all of its state from the beginning.

    Args:
        parameters: by name.
    """

    _averages: torch.dtype | None = None
    """What AdamW keeps them in; ``None`` = what the parameter is in."""

    def __init__(self, section: OptimizerSection, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._optimizer = make_optimizer(section, list(self._targets().values()))
        for name, target in self._targets().items():
            averages = self._averages or parameters[name].dtype
            self._optimizer.state[target] = first_state(section.kind, target, averages)

    def step(self, learning_rate: float, step: int) -> None:
        """Update the parameters by their gradients, and forget those.

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
        """``exp_avg/NAME`` and so on: what it holds itself, so that writing to it restores it."""
        return {
            f"{kind}{part}/{name}": tensor
            for name, target in self._targets().items()
            for kind, value in self._optimizer.state[target].items()
            for part, tensor in _plain(value).items()
        }

    def _targets(self) -> Mapping[str, nn.Parameter]:
        """What the optimizer knows of."""
        return self._parameters

    def _apply(self, step: int) -> None:  # noqa: ARG002 - rounding needs it
        self._optimizer.step()


class MasterUpdate(Update):
    """Of one parameter, of which it has a float32 copy: that one is updated, then copied back."""

    _averages = torch.float32

    def __init__(self, section: OptimizerSection, name: str, parameter: nn.Parameter) -> None:
        self._master = {name: nn.Parameter(parameter.detach().float())}
        super().__init__(section, {name: parameter})

    def state(self) -> dict[str, torch.Tensor]:
        copies = {f"master/{name}": master.detach() for name, master in self._master.items()}
        return super().state() | copies

    def _targets(self) -> Mapping[str, nn.Parameter]:
        return self._master

    @torch.no_grad()
    def _apply(self, step: int) -> None:
        for name, master in self._master.items():
            parameter = self._parameters[name]
            master.grad = None if parameter.grad is None else parameter.grad.float()
            super()._apply(step)
            master.grad = None
            parameter.copy_(master)


class RoundedUpdate(Update):
    """Of one parameter that is float32 only while it is updated, then rounded up or down by chance.

    So are AdamW's averages: to nearest, an average of squares would not move either.

    Args:
        drawn_as: the name its chance comes from; that and the step decide it, on whatever rank.
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
        self._exact = {name: nn.Parameter(parameter.detach().float())}
        self._seed = seed
        self._drawn_as = drawn_as
        super().__init__(section, {name: parameter})
        self._forget()

    def _targets(self) -> Mapping[str, nn.Parameter]:
        return self._exact

    def _forget(self) -> None:
        for exact in self._exact.values():
            exact.grad = None
            exact.data = torch.empty(0, device=exact.device)

    @torch.no_grad()
    def _apply(self, step: int) -> None:
        for name, exact in self._exact.items():
            parameter = self._parameters[name]
            if parameter.grad is None:
                continue
            exact.data = parameter.float()
            exact.grad = parameter.grad.float()
            state = self._optimizer.state[exact]
            rounded = {k: one for k, one in state.items() if one.dtype == torch.bfloat16}
            state.update({kind: one.float() for kind, one in rounded.items()})
            super()._apply(step)
            chance = self._generator(step, parameter.device)
            round_by_chance(parameter, exact, chance)
            for kind, one in rounded.items():
                round_by_chance(one, state[kind], chance)
                state[kind] = one
        self._forget()

    def _generator(self, step: int, device: torch.device) -> torch.Generator:
        digest = hashlib.sha256(f"{self._seed}\0{step}\0{self._drawn_as}".encode()).digest()
        return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def round_by_chance(
    target: torch.Tensor, exact: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Write float32 ``exact`` into bfloat16 ``target``, right on average.

    A bfloat16 is a float32 without its lower 16 bits: a random number below 2^16 added to them
    carries over as often as they are close to it.
    """
    noise = torch.randint(
        1 << 16, exact.shape, dtype=torch.int32, device=exact.device, generator=generator
    )
    carried = ((exact.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32)
    return target.copy_(torch.where(exact.isfinite(), carried, exact))


def _plain(value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors that a quantized one is made of, by what to call them after its own name."""
    if hasattr(value, "__tensor_flatten__"):
        parts, _ = value.__tensor_flatten__()
        return {f".{part}": getattr(value, part) for part in parts}
    return {"": value}
