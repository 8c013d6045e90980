"""Attention that knows document boundaries without reading them back from the GPU.

transformers tells packed documents apart by their position ids: it reads them back in every
microbatch, and for flash attention in every layer, which waits for the GPU. Here the host, which
packed the documents, says where they end, and each stage prepares once per microbatch what its
layers need.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.utils import is_flash_attn_2_available

# Looked up here, because a compiled layer cannot import.
torchs_kernel: Any = None
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch 2.9
    pass
else:
    # The first versions (2.10, 2.11) lack some.
    if inspect.signature(varlen_attn).parameters.keys() >= {"scale", "window_size", "enable_gqa"}:
        torchs_kernel = varlen_attn
packaged_kernel: Any = None
try:
    from flash_attn import flash_attn_varlen_func
except ImportError:  # not installed, or built for another torch
    pass
else:
    packaged_kernel = flash_attn_varlen_func

OURS = "mntrain"
"""Name of this attention in transformers. No mask is registered for it, so transformers makes none,
and reads no tensor to find out which one."""

Kernel = Literal["mask", "varlen", "flash-attn", "flex"]
"""What keeps documents apart: a mask for torch's scaled dot product; torch's own flash kernel for
sequences of different lengths; that of the package flash-attn; torch's flex attention."""

KERNELS: Mapping[str, Kernel] = {
    "sdpa": "mask",
    "varlen": "varlen",
    "flash_attention_2": "flash-attn",
    "flex_attention": "flex",
}
"""The kernel of each kind of attention in a recipe, other than ``eager``."""


class Boundaries(NamedTuple):
    """The documents of a microbatch whose sequences are laid end to end.

    Args:
        ends: where each begins, then where the last ends: (n + 1,), int32.
        longest: at least the length of the longest, in tokens.
        packaged: use flash-attn's kernel instead of torch's.
    """

    ends: torch.Tensor
    longest: int
    packaged: bool


Seen = torch.Tensor | BlockMask | Boundaries | None
"""Which tokens a token sees; ``None`` is all before it in its sequence, and itself."""


@dataclass(frozen=True)
class Attention:
    """Prepares what the layers of a stage need for a microbatch.

    Args:
        kernel: from :data:`KERNELS`.
        windows: how many tokens back the layers see, themselves included; ``None`` is all.
        dtype: of activations.
        is_capped: whether scores are.
    """

    kernel: Kernel
    windows: frozenset[int | None]
    dtype: torch.dtype
    is_capped: bool = False

    def prepare(
        self, positions: torch.Tensor, ends: torch.Tensor | None, longest: int
    ) -> dict[int | None, Seen]:
        """Return what attention needs, by window.

        Args:
            positions: (sequences, length), from 0 in each document.
            ends: (sequences, documents), where each document ends in its sequence; ``None`` if
                each sequence is one document.
            longest: at least the length of the longest document, in tokens.
        """
        return {window: self._seen(window, positions, ends, longest) for window in self.windows}

    def _seen(
        self, window: int | None, positions: torch.Tensor, ends: torch.Tensor | None, longest: int
    ) -> Seen:
        sequences, length = positions.shape
        reach = window if window is not None and window < length else None
        # Kernels that can cap scores do not know by themselves that nothing sees what follows.
        needs_none = self.kernel != "flash-attn" and not self.is_capped
        if ends is None and reach is None and needs_none:
            return None
        if self.kernel == "mask":
            return _mask(positions, ends, reach, self.dtype)
        if self.kernel == "flex":
            return _block_mask(positions, ends, reach)
        bounds = _bounds(ends, sequences, length, positions.device)
        return Boundaries(bounds, longest if ends is not None else length, self.kernel != "varlen")


def has_varlen() -> bool:
    """Return whether torch has flash attention for documents of different lengths."""
    return torchs_kernel is not None and torch.backends.cuda.is_flash_attention_available()


def has_flash_attn() -> bool:
    """Return whether the package flash-attn is installed and supports this GPU."""
    return packaged_kernel is not None and bool(is_flash_attn_2_available())


def windows_of(attentions: Iterable[nn.Module], config: Any) -> frozenset[int | None]:
    """Return how far the attention of some layers reaches: sliding windows, ``None`` for all."""
    whole = getattr(config, "sliding_window", None)
    # Some families have windows in some layers only, which then name theirs.
    return frozenset(getattr(one, "sliding_window", whole) for one in attentions)


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _attention_mask: None,
    *,
    scaling: float,
    seen: Mapping[int | None, Seen],
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Compute attention, as transformers calls it.

    Args:
        query: (b, heads, T, d).
        key: (b, key-value heads, T, d); ``value``, too.
        seen: from :meth:`Attention.prepare`.

    Returns:
        (b, T, heads, d).
    """
    here = seen[sliding_window]
    if isinstance(here, Boundaries):
        found = _by_document(query, key, value, here, scaling, dropout, sliding_window, softcap)
        return found, None
    if softcap is not None:
        capped = flex_attention_forward if isinstance(here, BlockMask) else eager_attention_forward
        output = capped(
            module, query, key, value, here, dropout=dropout, scaling=scaling, softcap=softcap
        )[0]
        return output, None
    compute = flex_attention_forward if isinstance(here, BlockMask) else sdpa_attention_forward
    output = compute(module, query, key, value, here, dropout=dropout, scaling=scaling)[0]
    return output, None


def _by_document(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Boundaries,
    scaling: float,
    dropout: float,
    window: int | None,
    cap: float | None,
) -> torch.Tensor:
    sequences, _, length, _ = query.shape
    flat = [one.transpose(1, 2).flatten(0, 1) for one in (query, key, value)]
    ends, most = bounds.ends, bounds.longest
    # Flash kernels count the tokens before a token, without itself.
    back = -1 if window is None or window >= length else window - 1
    if bounds.packaged:
        output = packaged_kernel(
            *flat,
            *(ends, ends, most, most),
            dropout_p=dropout,
            softmax_scale=scaling,
            causal=True,
            window_size=(back, -1 if back < 0 else 0),
            **({} if cap is None else {"softcap": cap}),
        )
    else:
        output = torchs_kernel(
            *flat,
            *(ends, ends, most, most),
            scale=scaling,
            window_size=(back, 0),
            enable_gqa=True,
        )
    computed: torch.Tensor = output.view(sequences, length, *output.shape[1:])
    return computed


def _bounds(
    ends: torch.Tensor | None, sequences: int, length: int, device: torch.device
) -> torch.Tensor:
    """Return where documents begin and end with all sequences laid end to end: (n + 1,), int32."""
    begins = torch.arange(sequences, dtype=torch.int32, device=device) * length
    inside = length if ends is None else ends
    return nn.functional.pad((begins.unsqueeze(1) + inside).flatten(), (1, 0))


def _document(positions: torch.Tensor) -> torch.Tensor:
    """Return the number of each token's document in its sequence: (sequences, length)."""
    return (positions == 0).cumsum(1)


def _mask(
    positions: torch.Tensor, ends: torch.Tensor | None, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """Return what is added to the scores: (sequences or 1, 1, length, length)."""
    place = torch.arange(positions.shape[1], device=positions.device)
    back = place.unsqueeze(1) - place
    seen = (back >= 0).unsqueeze(0)
    if window is not None:
        seen = seen & (back < window)
    if ends is not None:
        document = _document(positions)
        seen = seen & (document.unsqueeze(2) == document.unsqueeze(1))
    # Made once in the dtype of the scores: of truth values torch makes a copy in each layer.
    zeros = torch.zeros(seen.shape, dtype=dtype, device=positions.device)
    return zeros.masked_fill(~seen, float("-inf")).unsqueeze(1)


def _block_mask(
    positions: torch.Tensor, ends: torch.Tensor | None, window: int | None
) -> BlockMask:
    sequences, length = positions.shape
    document = None if ends is None else _document(positions)

    def is_seen(
        sequence: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        seen = query >= key
        if window is not None:
            seen = seen & (query - key < window)
        if document is not None:
            seen = seen & (document[sequence, query] == document[sequence, key])
        return seen

    return create_block_mask(is_seen, sequences, None, length, length, device=str(positions.device))


AttentionInterface.register(OURS, attend)
