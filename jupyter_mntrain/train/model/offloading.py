"""Activation offloading: keeps activations in host memory until their backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

SMALLEST_BYTES = 1 << 20
"""Smaller tensors are not worth a copy, which takes about 10 µs to start."""


class Offload:
    """Context that copies what autograd saves to the host, and back when it is needed.

    Copies overlap with computation: they use their own CUDA stream and pinned memory.

    Args:
        weights: autograd saves them too; they are not copied.
        smallest_bytes: smaller tensors are not copied.
    """

    def __init__(
        self,
        weights: Iterable[torch.Tensor],
        device: torch.device,
        *,
        smallest_bytes: int = SMALLEST_BYTES,
    ) -> None:
        self._stays = {weight.untyped_storage().data_ptr() for weight in weights}
        self._smallest_bytes = smallest_bytes
        self._is_cuda = device.type == "cuda"
        self._outward: Any = None
        if self._is_cuda:
            self._outward = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._hooks: list[saved_tensors_hooks] = []

    def __enter__(self) -> None:
        hooks = saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._hooks.append(hooks)

    def __exit__(self, *error: object) -> None:
        self._hooks.pop().__exit__(*error)

    def _pack(self, saved: torch.Tensor) -> torch.Tensor | tuple[torch.device, torch.Tensor]:
        is_weight = saved.untyped_storage().data_ptr() in self._stays
        if is_weight or saved.nbytes < self._smallest_bytes:
            return saved
        if not self._is_cuda:
            return saved.device, saved.detach().clone()
        return saved.device, self._sent_out(saved.detach())

    def _sent_out(self, saved: torch.Tensor) -> torch.Tensor:
        host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=True)
        self._outward.wait_stream(torch.cuda.current_stream(saved.device))
        with torch.cuda.stream(self._outward):
            host.copy_(saved, non_blocking=True)
        # The allocator must not reuse this memory before the copy has read it.
        saved.record_stream(self._outward)
        return host

    def _unpack(self, packed: torch.Tensor | tuple[torch.device, torch.Tensor]) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        device, host = packed
        if self._is_cuda:
            torch.cuda.current_stream(device).wait_stream(self._outward)
        return host.to(device, non_blocking=True)
