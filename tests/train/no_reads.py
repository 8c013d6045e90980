"""No reads: fails where the host reads a tensor, which on a GPU waits for all that was queued."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

_READING = {
    aten._local_scalar_dense: "item() or float()",
    aten.is_nonzero: "bool()",
    aten.equal: "equal()",
    aten.nonzero: "nonzero(), or an index of booleans",
    aten.masked_select: "masked_select()",
}
_COPYING = {aten._to_copy, aten.copy_, aten._foreach_copy_}
_METHODS = ("tolist", "numpy", "__array__", "cpu", "item", "__float__", "__int__", "__bool__")


class HostReadError(AssertionError):
    """The host has read a tensor."""


class NoReads(TorchDispatchMode):
    """Refuses reads of any tensor, and copies between devices that would wait.

    Attributes:
        operations: names of the operators that have run, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []
        self._patches = ExitStack()

    def __enter__(self) -> NoReads:
        # On a CPU some of them read memory without an operator.
        for name in _METHODS:
            self._patches.enter_context(patch.object(torch.Tensor, name, _refusing(name)))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        self.operations.append(packet.__name__)
        if packet in _READING:
            raise HostReadError(f"{_READING[packet]} in a step: the host would wait for the GPU")
        found = func(*args, **kwargs)
        if packet in _COPYING and not _is_asynchronous(func, args, kwargs):
            places = {one.device.type for one in _tensors((found, args))}
            if len(places) > 1:
                raise HostReadError(f"{packet.__name__} from one of {places} to another waits")
        return found


def _is_asynchronous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    names = [one.name for one in func._schema.arguments]
    return bool({**dict(zip(names, args, strict=False)), **kwargs}.get("non_blocking"))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for some in value for one in _tensors(some)]
    return []


def _refusing(name: str) -> Any:
    def refuse(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise HostReadError(f"{name}() in a step: the host would wait for the GPU")

    return refuse
