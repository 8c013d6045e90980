"""Device number: a number that a device is still computing, to be read later without waiting."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from jupyter_mntrain.telemetry.recorder import as_float


class DeviceNumber:
    """A copy of a small tensor's current value, in transit to the host.

    ``float(tensor)`` waits for everything that was queued on a GPU before, which then idles until
    the next kernels arrive. A number of an earlier step is on the host already.

    Args:
        value: on any device; it may change afterwards. A distributed one is gathered
            now: collective.
    """

    def __init__(self, value: torch.Tensor) -> None:
        value = value.detach()
        if isinstance(value, DTensor):
            value = value.full_tensor()
        self._arrived: Any = None
        if value.is_cuda:
            self._value = value.to("cpu", non_blocking=True)  # into pinned memory
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record(torch.cuda.current_stream(value.device))
        else:
            self._value = value.clone()

    @property
    def is_known(self) -> bool:
        """Whether :meth:`read` would return at once."""
        return self._arrived is None or bool(self._arrived.query())

    def read(self) -> float:
        """Return the number of a tensor of one element; waits for its device if necessary."""
        self._wait()
        return float(self._value)

    def read_all(self) -> list[float]:
        """Return all numbers of the tensor; waits for its device if necessary."""
        self._wait()
        return [float(one) for one in self._value.flatten().tolist()]

    def _wait(self) -> None:
        if self._arrived is not None:
            self._arrived.synchronize()


def number_of(value: Any) -> float | DeviceNumber:
    """Return a number as it is, or a tensor's as a :class:`DeviceNumber` to be read later."""
    return DeviceNumber(value) if isinstance(value, torch.Tensor) else as_float(value)
