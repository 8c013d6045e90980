"""Activations: saves memory by recomputing them, or by keeping them in host memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.adapters import is_quantized
from jupyter_mntrain.train.model.decoder import StageModule

# Activation offloading: keeps activations in host memory until their backward pass.


SMALLEST_BYTES = 1 << 20
"""Smaller tensors are not worth a copy, which takes about 10 µs to start."""


class Copies(Protocol):
    """Copies between a GPU and its host while the GPU computes."""

    def out(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Start to copy a tensor to the host; return the copy, and a handle for its end."""

    def back(self, host: torch.Tensor, sent: Any) -> tuple[torch.Tensor, Any]:
        """Start to copy it back after the copy to the host; return the same as :meth:`out`."""

    def await_back(self, tensor: torch.Tensor, ready: Any) -> None:
        """Make later computation wait for the copy."""


class CudaCopies:
    """Copies through pinned memory on two streams, one for each direction.

    torch's host allocator keeps pinned memory, and hands it out again when its copies have ended.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._outward: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._inward: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def out(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        host = _pinned(tensor)
        self._outward.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._outward):
            host.copy_(tensor, non_blocking=True)
        # The allocator must not reuse this memory before the copy has read it.
        tensor.record_stream(self._outward)
        return host, self._outward.record_event()

    def back(self, host: torch.Tensor, sent: Any) -> tuple[torch.Tensor, Any]:
        self._inward.wait_event(sent)
        with torch.cuda.stream(self._inward):
            tensor = torch.empty_like(host, device=self._device, pin_memory=False)
            tensor.copy_(host, non_blocking=True)
        return tensor, self._inward.record_event()

    def await_back(self, tensor: torch.Tensor, ready: Any) -> None:
        computing: Any = torch.cuda.current_stream(self._device)
        computing.wait_event(ready)
        # It was allocated for the other stream, which may not reuse it earlier.
        tensor.record_stream(computing)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    try:
        return torch.empty_like(tensor, device="cpu", pin_memory=True)
    except RuntimeError as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        cause = "memory.offload_activations = true: there is no host memory for "
        cause += f"{tensor.nbytes / 1e6:,.1f} MB more: {reason}"
        fix = 'use memory.checkpointing = "full" to keep less, or smaller microbatches'
        raise RecipeError(cause, fix=fix) from error


class Offload:
    """Context of a forward pass that moves what autograd saves to the host, and back in time.

    In the backward pass, the copies of the layer before the current one have already begun: as
    many bytes as a layer has on average are on the way, or wait to be used.

    Args:
        weights: autograd saves them too; they are not copied.
        layers: in the forward pass.
        smallest_bytes: smaller tensors are not copied.
    """

    def __init__(
        self,
        weights: Iterable[torch.Tensor],
        copies: Copies,
        *,
        layers: int,
        smallest_bytes: int = SMALLEST_BYTES,
    ) -> None:
        whole = (one for one in weights if not is_quantized(one))
        self._stays = {one.untyped_storage().data_ptr() for one in whole}
        self._gathered: dict[nn.Module, set[int]] = {}
        self._copies = copies
        self._layers = max(1, layers)
        self._smallest_bytes = smallest_bytes
        self._passes: list[_Pass] = []
        self._hooks: list[saved_tensors_hooks] = []

    def leave(self, module: nn.Module) -> None:
        """Do not copy a module's gathered weights until they are freed.

        Their memory address changes each time and is reused.
        """
        self._stays.clear()  # what there was before sharding
        whole = (one for one in module.parameters() if not isinstance(one, DTensor))
        self._gathered[module] = {one.untyped_storage().data_ptr() for one in whole}

    def forget(self, module: nn.Module) -> None:
        """Forget a module's gathered weights, which have been freed."""
        self._gathered.pop(module, None)

    def _is_weight(self, saved: torch.Tensor) -> bool:
        there = saved.untyped_storage().data_ptr()
        return there in self._stays or any(there in some for some in self._gathered.values())

    def __enter__(self) -> None:
        self._passes.append(_Pass(self._copies, self._layers))
        hooks = saved_tensors_hooks(self._pack, _unpack)
        hooks.__enter__()
        self._hooks.append(hooks)

    def __exit__(self, *error: object) -> None:
        self._hooks.pop().__exit__(*error)
        self._passes.pop().end()

    def _pack(self, saved: torch.Tensor) -> torch.Tensor | _Kept:
        if is_quantized(saved):
            return saved
        if saved.nbytes < self._smallest_bytes or self._is_weight(saved):
            return saved
        return self._passes[-1].keep(saved.detach())


def _unpack(packed: torch.Tensor | _Kept) -> torch.Tensor:
    return packed if isinstance(packed, torch.Tensor) else packed.of.fetch(packed)


@dataclass(eq=False)
class _Kept:
    """A tensor on the host, owned by autograd alone, which frees its memory."""

    of: _Pass
    begin: int
    """Bytes saved before it in the forward pass."""
    place: int
    """Number of tensors saved before it."""
    host: torch.Tensor
    sent: Any
    uses: int = 1
    """How often autograd has saved it: a layer's input once for each projection of it."""
    left: int = 1
    fetched: tuple[torch.Tensor, Any] | None = None


class _Pass:
    """What one forward pass has saved; its backward pass fetches it last to first."""

    def __init__(self, copies: Copies, layers: int) -> None:
        self._copies = copies
        self._layers = layers
        self._order: list[weakref.ref[_Kept]] = []
        self._bytes = 0
        self._ahead_bytes = 0
        """How far ahead of its use a tensor is fetched, in bytes."""
        self._known: dict[Any, tuple[weakref.ref[Any], weakref.ref[_Kept]]] = {}
        """Saved tensors by identity, with their storage as long as it lives."""

    def end(self) -> None:
        """End the forward pass."""
        self._ahead_bytes = self._bytes // self._layers
        self._known.clear()

    def keep(self, saved: torch.Tensor) -> _Kept:
        storage = saved.untyped_storage()
        view = (saved.storage_offset(), saved.shape, saved.stride(), saved.dtype)
        key = (storage.data_ptr(), *view, saved._version)  # noqa: SLF001
        lives, known = self._known.get(key, (None, None))
        before = known() if known is not None and lives is not None and lives() else None
        if before is not None:
            before.uses += 1
            before.left += 1
            return before
        host, sent = self._copies.out(saved)
        kept = _Kept(self, self._bytes, len(self._order), host, sent)
        self._order.append(weakref.ref(kept))
        self._bytes += host.nbytes
        self._known[key] = (weakref.ref(storage), weakref.ref(kept))
        return kept

    def fetch(self, kept: _Kept) -> torch.Tensor:
        """Return a tensor on the device, and start to fetch what will be needed next."""
        tensor, ready = self._fetching(kept)
        kept.left -= 1
        if kept.left == 0:
            # A schedule that splits the backward pass asks for it again.
            kept.fetched, kept.left = None, kept.uses
        self._fetch_before(kept)
        self._copies.await_back(tensor, ready)
        return tensor

    def _fetching(self, kept: _Kept) -> tuple[torch.Tensor, Any]:
        if kept.fetched is None:
            kept.fetched = self._copies.back(kept.host, kept.sent)
        return kept.fetched

    def _fetch_before(self, current: _Kept) -> None:
        for reference in reversed(self._order[: current.place]):
            kept = reference()
            if kept is None or kept.left < kept.uses:
                continue
            if current.begin - kept.begin > self._ahead_bytes:
                return
            self._fetching(kept)


# Activation checkpointing: stores fewer activations and recomputes the rest.


_KEPT = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        *("mm", "addmm", "bmm", "_scaled_dot_product_flash_attention"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_cudnn_attention"),
        *(
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
    )
)
"""Operations that are most expensive to recompute: matrix products and attention."""

_KEPT_BY_NAME = frozenset(
    {"torch_attn._varlen_attn.default", "flash_attn._flash_attn_varlen_forward.default"}
)
"""The same, if this torch or flash-attn has them."""


def keep_less(stage: StageModule, recipe: Recipe, device: torch.device) -> None:
    """Apply the recipe's checkpointing, compilation and offloading to each layer of a stage."""
    every = recipe.memory.checkpointing_every
    for number, layer in enumerate(stage.present().values()):
        if recipe.checkpointing != "none" and number % every == 0:
            _compute_again(layer, is_selective=recipe.checkpointing == "selective")
        if recipe.compiles:
            # Not the whole call: what FSDP2 and the stopwatch do around it cannot be compiled.
            layer.forward = torch.compile(layer.forward)
    if recipe.memory.offload_activations and device.type == "cuda":
        copies = CudaCopies(device)
        stage.keeping = Offload(stage.weights().values(), copies, layers=len(stage.layers))


def _compute_again(layer: nn.Module, *, is_selective: bool) -> None:
    forward = layer.forward
    contexts: dict[str, Any] = {}
    if is_selective:
        contexts["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)

    layer.forward = checkpointed


def _policy(_context: Any, operation: Callable[..., Any], *_: Any, **__: Any) -> CheckpointPolicy:
    kept = operation in _KEPT or str(operation) in _KEPT_BY_NAME
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
