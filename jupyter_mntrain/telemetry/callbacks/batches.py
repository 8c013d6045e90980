"""Batch meter: counts tokens in a loop's batches, and its model's FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor, nn

from jupyter_mntrain.telemetry.formulas import dense_flops_per_token, layer_windows

FlopsPerToken = Callable[[int], float]
"""Sequence length in tokens → model FLOPs per token, forward and backward."""

_TOKENS = ("input_ids", "attention_mask", "decoder_input_ids", "inputs_embeds")
"""Fields of a batch whose first two dimensions are sequences and positions."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")

_ATTENTIONS = {"full_attention", "sliding_attention"}


class BatchMeter:
    """Adds up tokens and FLOPs of the batches in one step.

    Args:
        flops_per_token: the model's; ``None`` = unknown, and FLOPs are not counted.
    """

    def __init__(self, flops_per_token: FlopsPerToken | None = None) -> None:
        self._flops_per_token = flops_per_token
        self._tokens: int | None = None
        self._flops: float | None = None

    def add(self, batch: object) -> int | None:
        """Count a batch, including padding; return its sequence length, if it has one."""
        shape = token_shape(batch)
        if shape is None:
            return None
        sequences, length = shape
        tokens = sequences * length
        self._tokens = (self._tokens or 0) + tokens
        if self._flops_per_token is not None:
            self._flops = (self._flops or 0.0) + tokens * self._flops_per_token(length)
        return length

    def take(self) -> tuple[int | None, float | None]:
        """Return the tokens and FLOPs since the last call; ``None`` if unknown."""
        taken = self._tokens, self._flops
        self._tokens = self._flops = None
        return taken


def token_shape(batch: object) -> tuple[int, int] | None:
    """Return (sequences, positions) of a batch of tokens; ``None`` for any other batch.

    A mapping is recognized by its keys, a sequence by its first item, a tensor by having two
    dimensions of integers: labels have one dimension, images are floats.
    """
    if isinstance(batch, Mapping):
        for name in _TOKENS:
            field = batch.get(name)
            if isinstance(field, Tensor) and field.dim() >= 2:
                return int(field.shape[0]), int(field.shape[1])
        return None
    if isinstance(batch, Tensor):
        is_tokens = batch.dim() == 2 and not batch.is_floating_point() and not batch.is_complex()
        return (int(batch.shape[0]), int(batch.shape[1])) if is_tokens else None
    if isinstance(batch, Sequence) and not isinstance(batch, str) and batch:
        return token_shape(batch[0])
    return None


def parameter_count(model: nn.Module) -> int:
    """Count all parameters, including those that DeepSpeed ZeRO-3 keeps on other ranks."""
    return sum(int(getattr(one, "ds_numel", one.numel())) for one in model.parameters())


def model_flops(model: nn.Module) -> FlopsPerToken | None:
    """Return the FLOPs formula of the transformers decoder that ``model`` is or contains.

    ``None`` where it would be wrong rather than rough: without a decoder, with experts, frozen
    weights, several modalities, or layers without attention over the whole sequence.
    """
    decoder = next(_decoders(model), None)
    if decoder is None or not _is_plain(decoder.config):
        return None
    if not all(weight.requires_grad for weight in decoder.parameters()):
        return None
    config = decoder.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    windows = layer_windows(config)
    weights = sum(_matrix_weights(module) for module in decoder.modules())

    def flops_per_token(sequence_length: int) -> float:
        return dense_flops_per_token(
            weights,
            layers=layers,
            heads=heads,
            head_dim=head_dim,
            sequence_length=fmean(min(sequence_length, one or sequence_length) for one in windows),
        )

    return flops_per_token


def _decoders(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        can_generate = getattr(module, "can_generate", None)
        if callable(can_generate) and hasattr(module, "config") and can_generate():
            yield module


def _is_plain(config: Any) -> bool:
    wanted = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    if any(not isinstance(getattr(config, name, None), int) for name in wanted):
        return False
    if getattr(config, "is_encoder_decoder", False) or hasattr(config, "vision_config"):
        return False
    if any(getattr(config, name, None) for name in _EXPERTS):
        return False
    return set(getattr(config, "layer_types", None) or ()) <= _ATTENTIONS


def _matrix_weights(module: nn.Module) -> int:
    """Count the weights of a linear layer by its widths, as a sharded weight has fewer values."""
    if isinstance(module, nn.Linear):
        return module.in_features * module.out_features
    if type(module).__name__ == "Conv1D" and isinstance(module.weight, Tensor):
        return module.weight.numel()  # GPT-2's linear layer
    return 0
