"""Precision of weights between steps: plain, with a float32 master, or rounded stochastically."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

from jupyter_mntrain.recipe.sections import OptimizerSection
from jupyter_mntrain.train.optimizer.algorithms import Split, first_state, make_optimizer
from jupyter_mntrain.train.own_tools import can_compile_for_gpus

# Weight precision between steps: as is, with a float32 master copy, or stochastically rounded.
#
# A bfloat16 has 8 significant bits, so rounding to nearest loses updates smaller than 1/256 of a
# weight: most of late training. A float32 copy keeps them; stochastic rounding keeps them on
# average (arXiv 2010.06192).


class Update:
    """An optimizer that updates parameters directly, and has its state from the start.

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
        """Return the weights in the precision of their storage between steps, by name; writable."""
        return {name: one.detach() for name, one in self._parameters.items()}

    def renew(self) -> None:
        """Apply what was written to :meth:`kept`."""

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
    """Updates parameters through lasting float32 copies of them."""

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
    """Return the plain tensors of a quantized one, by suffix; a plain tensor as it is."""
    if hasattr(value, "__tensor_flatten__"):
        parts, _ = value.__tensor_flatten__()
        return {f".{part}": getattr(value, part) for part in parts}
    return {"": value}


# Stochastic rounding of bfloat16 weights, and of their averages.
#
# The random numbers are a counter-based hash: a pure function of seed, step, the parameter's name
# and the value's place in it. So they are the same on every device and rank, and a compiled kernel
# can make them where it needs them, without a pass over memory.


CPU_CHUNK, GPU_CHUNK = 1 << 18, 1 << 26
"""Values that are rounded at once, uncompiled: they stay in a processor's cache; a GPU launches a
kernel for each of twenty operators."""

_LOWER_HALF = 0xFFFF


class RoundedUpdate(Update):
    """Updates parameters in float32, and rounds the results stochastically.

    AdamW's averages are rounded the same way: to nearest, they would not move either. On a GPU with
    a compiler, one kernel per parameter reads and writes bfloat16 alone; otherwise, float32 copies
    of all of them exist during the update.

    Args:
        drawn_as: by name: seeds the rounding together with the step.
    """

    def __init__(
        self,
        section: OptimizerSection,
        parameters: Mapping[str, nn.Parameter],
        *,
        seed: int,
        drawn_as: Mapping[str, str],
        split: Split | None = None,
    ) -> None:
        self._section = section
        exact = {name: nn.Parameter(one.detach().float()) for name, one in parameters.items()}
        super().__init__(section, parameters, targets=exact, split=split)
        self._free()
        device = next(iter(parameters.values())).device
        seeds = [_key(f"{seed}\0{drawn_as[name]}") for name in parameters]
        self._seeds = torch.tensor(seeds, dtype=torch.int32, device=device)
        self._is_compiled = (
            section.kind == "adamw" and device.type == "cuda" and can_compile_for_gpus()
        )

    def _free(self) -> None:
        """Free the float32 copies between steps."""
        for exact in self._targets.values():
            exact.data = torch.empty(0, device=exact.device)

    def _apply(self, learning_rate: float, step: int) -> None:
        keys = self._seeds ^ _key(str(step))
        if self._is_compiled:
            self._apply_compiled(learning_rate, keys)
            return
        gradients = self._take_gradients()
        if not gradients:
            return
        touched = {name: self._targets[name] for name in gradients}
        for name, exact in touched.items():
            exact.data = torch.empty_like(self._parameters[name], dtype=torch.float32)
        torch._foreach_copy_([*touched.values()], [self._parameters[name] for name in touched])
        rounded = {}
        for name, exact in touched.items():
            state = self._optimizer.state[exact]
            rounded[name] = {k: one for k, one in state.items() if one.dtype == torch.bfloat16}
            state.update({kind: one.float() for kind, one in rounded[name].items()})
        self._optimize(learning_rate, gradients)
        for key, name in zip(torch.split(keys, 1), self._targets, strict=True):
            if name not in touched:
                continue
            exact = touched[name]
            state = self._optimizer.state[exact]
            narrow = [self._parameters[name], *rounded[name].values()]
            wide = [exact, *(state[kind] for kind in rounded[name])]
            round_stochastically(narrow, wide, key)
            state.update(rounded[name])
        self._free()

    def _apply_compiled(self, learning_rate: float, keys: torch.Tensor) -> None:
        section = self._section
        # By value to a kernel that fills it: a tensor made from a Python number waits for the GPU.
        rate = torch.full((), learning_rate, device=keys.device)
        update = _compiled_adamw()
        for key, (name, exact) in zip(torch.split(keys, 1), self._targets.items(), strict=True):
            parameter, state = self._parameters[name], self._optimizer.state[exact]
            if parameter.grad is None:
                continue
            update(
                parameter.detach().view(-1),
                parameter.grad.reshape(-1),
                state["exp_avg"].view(-1),
                state["exp_avg_sq"].view(-1),
                state["step"],
                rate,
                key,
                betas=section.betas,
                epsilon=section.epsilon,
                decay=section.weight_decay if parameter.ndim > 1 else 0.0,
            )
            parameter.grad = None


@cache
def _compiled_adamw() -> Any:
    return torch.compile(rounded_adamw, dynamic=True, fullgraph=True)


def rounded_adamw(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    average: torch.Tensor,
    square: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    key: torch.Tensor,
    *,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
) -> None:
    """AdamW in float32 on bfloat16 tensors of one dimension, written to be one kernel.

    Args:
        average, square: AdamW's averages; updated, like ``parameter`` and ``step``.
        step: finished updates, a scalar.
        rate: learning rate, a scalar.
        key: (1,) int32.
    """
    step += 1
    exact, slope = parameter.float(), gradient.float()
    first = torch.lerp(average.float(), slope, 1 - betas[0])
    second = square.float() * betas[1] + slope * slope * (1 - betas[1])
    size = (second / (1 - betas[1] ** step)).sqrt() + epsilon
    exact = exact * (1 - rate * decay) - rate / (1 - betas[0] ** step) * first / size
    noise = _noise(_places(0, parameter), key)
    for narrow, wide, drawn in zip(
        (parameter, average, square), (exact, first, second), noise, strict=True
    ):
        narrow.copy_(_carried(wide, drawn))


def round_stochastically(
    narrow: list[torch.Tensor], wide: list[torch.Tensor], key: torch.Tensor
) -> None:
    """Write float32 ``wide`` into bfloat16 ``narrow``, correct in expectation.

    Args:
        narrow, wide: a parameter, then its averages if they are rounded, too; of one size.
        key: (1,) int32; with a value's place it determines its random numbers.
    """
    chunk = CPU_CHUNK if key.device.type == "cpu" else GPU_CHUNK
    pieces = [torch.split(one.detach().view(-1), chunk) for one in (*narrow, *wide)]
    for number, piece in enumerate(zip(*pieces, strict=True)):
        noise = _noise(_places(number * chunk, piece[0]), key)
        targets, exact = piece[: len(narrow)], piece[len(narrow) :]
        for target, one, drawn in zip(targets, exact, noise, strict=False):
            target.copy_(_carried(one, drawn))


def _carried(wide: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Round float32 values to bfloat16 precision.

    A bfloat16 is a float32 without its lower 16 bits: adding a random number below 2^16 carries
    with a probability proportional to them.
    """
    carried = ((wide.view(torch.int32) + noise) & ~_LOWER_HALF).view(torch.float32)
    return torch.where(wide.isfinite(), carried, wide)


def _noise(places: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Draw three independent numbers below 2^16 for each place, as int32."""
    one = _mixed(places ^ key)
    other = _mixed(one + key)
    return (one >> 16) & _LOWER_HALF, one & _LOWER_HALF, other & _LOWER_HALF


def _places(begin: int, like: torch.Tensor) -> torch.Tensor:
    places = torch.arange(begin, begin + like.numel(), device=like.device)
    return places.to(torch.int32)  # beyond 2^31 they wrap around


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    """Hash int32: Chris Wellons' lowbias32 (https://github.com/skeeto/hash-prospector)."""
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return bits ^ ((bits >> 16) & 0xFFFF)


def _key(text: str) -> int:
    """Hash a text to a signed 32-bit number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little", signed=True)
