"""Rotary embeddings whose frequencies depend on length, computed for each document separately.

transformers takes the longest position of whatever is computed at once, and with ``dynamic`` keeps
the frequencies of the longest text it has seen: losses would depend on a document's neighbors, on
microbatches and on what a process computed before. Here each document is rotated as a model that
was just loaded would rotate it alone, and nothing is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BY_LENGTH = ("dynamic", "longrope")
"""Kinds of ``rope_type`` that depend on the length."""


class RotationsByDocument(nn.Module):
    """Replaces a model's rotary embedding.

    Args:
        theirs: that of transformers, with its buffers filled.
    """

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self.theirs = theirs

    @torch.no_grad()
    def forward(
        self, hidden: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines, (b, T, rotated values of a head), in the dtype of ``hidden``.

        Args:
            position_ids: (b, T), from 0 in each document.
            layer_type: of families whose layers rotate in several ways.
        """
        prefix = "" if layer_type is None else f"{layer_type}_"
        kind = self.theirs.rope_type
        kind = kind if layer_type is None else kind[layer_type]
        frequencies = getattr(self.theirs, f"{prefix}inv_freq")
        scaling = getattr(self.theirs, f"{prefix}attention_scaling")
        if kind in BY_LENGTH:
            lengths = document_lengths(position_ids).unsqueeze(-1)
            frequencies = self._of_lengths(kind, layer_type, frequencies, lengths)
        angles = position_ids.unsqueeze(-1).float() * frequencies
        both = torch.cat((angles, angles), dim=-1)
        return (both.cos() * scaling).to(hidden.dtype), (both.sin() * scaling).to(hidden.dtype)

    def _of_lengths(
        self, kind: str, layer_type: str | None, short: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """Return the frequencies of each token, (b, T, half the rotated values).

        Args:
            short: of texts within the length that the model was first trained with.
            lengths: of each token's document, (b, T, 1).
        """
        config = self.theirs.config
        if kind == "dynamic":
            most, seen = config.max_position_embeddings, lengths
        else:
            asked = config.rope_parameters
            asked = asked if layer_type is None else asked[layer_type]
            most = asked["original_max_position_embeddings"]
            seen = most + 1
        named = {} if layer_type is None else {"layer_type": layer_type}
        long, _ = ROPE_INIT_FUNCTIONS[kind](config, short.device, seq_len=seen, **named)
        return torch.where(lengths > most, long, short)


def document_lengths(positions: torch.Tensor) -> torch.Tensor:
    """Return the length of each token's document, (b, T), without waiting for the GPU.

    Args:
        positions: (b, T), from 0 in each document.
    """
    length = positions.shape[1]
    place = torch.arange(length, device=positions.device)
    begins = torch.where(positions == 0, place, length)
    after = nn.functional.pad(begins[:, 1:], (0, 1), value=length)
    ends = after.flip(1).cummin(1).values.flip(1)
    return ends - place + positions


def rotate_by_document(causal: Any) -> None:
    """Replace a model's rotary embeddings if they depend on the length."""
    for name, module in [*causal.named_modules()]:
        kinds = getattr(module, "rope_type", None)
        kinds = kinds.values() if isinstance(kinds, dict) else (kinds,)
        if any(kind in BY_LENGTH for kind in kinds):
            causal.set_submodule(name, RotationsByDocument(module))
