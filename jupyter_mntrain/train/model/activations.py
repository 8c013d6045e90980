"""Activation checkpointing: stores fewer activations and recomputes the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.offloading import CudaCopies, Offload

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
"""Likewise, where this torch or flash-attn has them."""


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
