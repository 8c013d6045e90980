"""Staging: copies a state from a GPU to host memory through pinned buffers of bounded size.

A copy into ordinary memory makes the driver stage it in small pieces, one after another. Pinning
the whole copy would take the memory from everything else: an 8B model with its optimizer is 112 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

BUFFER_BYTES = 64 << 20
"""Size of each of two buffers: while one is filled, the other is emptied."""


class Transfers(Protocol):
    """Copies from a GPU into buffers on its host."""

    def buffer(self, size: int) -> torch.Tensor:
        """Make a buffer of ``size`` bytes."""

    def begin(self, buffer: torch.Tensor, source: torch.Tensor) -> Any:
        """Begin to fill a buffer; return what :meth:`wait` takes."""

    def wait(self, begun: Any) -> None:
        """Wait until it is filled."""


class CudaTransfers:
    """Transfers behind what the current stream has been given, such as the optimizer's step."""

    def buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def begin(self, buffer: torch.Tensor, source: torch.Tensor) -> Any:
        buffer.copy_(source, non_blocking=True)
        if not source.is_cuda:  # counts of steps are on the host, and copied already
            return None
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(source.device))
        return event

    def wait(self, begun: Any) -> None:
        if begun is not None:
            begun.synchronize()


class Staging:
    """Copies of tensors in host memory.

    Args:
        transfers: for tensors on a GPU; ``None`` copies them directly, as those on the CPU.
    """

    def __init__(self, transfers: Transfers | None, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._transfers = transfers
        self._buffer_bytes = buffer_bytes
        self._buffers: list[torch.Tensor] = []

    def copies(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy all; once this returns, the tensors may change."""
        transfers = self._transfers
        if transfers is not None and not self._buffers:
            try:
                self._buffers = [transfers.buffer(self._buffer_bytes) for _ in range(2)]
            except RuntimeError:  # no memory to pin: a slower copy is better than no checkpoint
                transfers = None
        if transfers is None:
            return {
                name: one.detach().to("cpu", copy=True).contiguous()
                for name, one in tensors.items()
            }
        found = {name: torch.empty(one.shape, dtype=one.dtype) for name, one in tensors.items()}
        filled: list[tuple[Any, torch.Tensor, torch.Tensor]] = []
        for number, (source, copy) in enumerate(self._pieces(tensors, found)):
            buffer = self._buffers[number % 2][: len(source)]
            if len(filled) == 2:
                _empty(transfers, *filled.pop(0))
            filled.append((transfers.begin(buffer, source), buffer, copy))
        for one in filled:
            _empty(transfers, *one)
        return found

    def _pieces(
        self, tensors: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]
    ) -> Any:
        for name, tensor in tensors.items():
            both = (_bytes(tensor.detach()), _bytes(found[name]))
            yield from zip(*(torch.split(one, self._buffer_bytes) for one in both), strict=True)


def staging(device: torch.device) -> Staging:
    """Staging for tensors of a device."""
    return Staging(CudaTransfers() if device.type == "cuda" else None)


def _empty(transfers: Transfers, begun: Any, buffer: torch.Tensor, copy: torch.Tensor) -> None:
    transfers.wait(begun)
    copy.copy_(buffer)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
