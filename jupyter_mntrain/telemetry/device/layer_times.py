"""Layer times: times a layer of a Llama-like decoder, using only torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

HEAD_DIM = 64


class LayerSize(NamedTuple):
    """The width of a layer, and the tokens in its only sequence."""

    hidden: int
    tokens: int

    @property
    def intermediate(self) -> int:
        """The width of the gated MLP, as Llama chooses it."""
        return self.hidden * 8 // 3 // HEAD_DIM * HEAD_DIM


class Layer:
    """Pre-norm attention and a gated MLP, as transformers computes them.

    Args:
        size: of the layer and its input, of shape ``(1, tokens, hidden)``.
    """

    def __init__(self, size: LayerSize, device: torch.device, dtype: torch.dtype) -> None:
        self.size = size
        hidden, wide = size.hidden, size.intermediate
        generator = torch.Generator(device).manual_seed(0)

        def weight(rows: int, columns: int) -> Tensor:
            drawn = torch.randn(rows, columns, device=device, generator=generator) * columns**-0.5
            converted: Tensor = drawn.to(dtype)
            return converted.requires_grad_()

        def ones() -> Tensor:
            return torch.ones(hidden, device=device, dtype=dtype, requires_grad=True)

        self.input = weight(size.tokens, hidden).detach()[None].requires_grad_()
        self.gradient = torch.ones_like(self.input)
        self.norms = ones(), ones()
        self.attention = tuple(weight(hidden, hidden) for _ in range(4))
        self.mlp = weight(wide, hidden), weight(wide, hidden), weight(hidden, wide)
        turns = torch.arange(size.tokens, device=device)[:, None] * torch.logspace(
            0, -4, HEAD_DIM // 2, device=device
        )
        both = torch.cat((turns, turns), dim=-1)
        self.cosines, self.sines = both.cos().to(dtype), both.sin().to(dtype)

    def forward(self) -> Tensor:
        """Return the layer's output, in the input's shape."""
        own = self.input
        normed = _normed(own, self.norms[0])
        queries, keys, values = (
            self._heads(functional.linear(normed, one)) for one in self.attention[:3]
        )
        attended = functional.scaled_dot_product_attention(
            self._turned(queries), self._turned(keys), values, is_causal=True
        )
        joined = attended.transpose(1, 2).reshape(own.shape)
        own = own + functional.linear(joined, self.attention[3])
        gate, up, down = self.mlp
        normed = _normed(own, self.norms[1])
        inner = functional.silu(functional.linear(normed, gate)) * functional.linear(normed, up)
        return own + functional.linear(inner, down)

    def backward(self, output: Tensor) -> None:
        """Compute the gradients of input and weights."""
        output.backward(self.gradient)  # type: ignore[no-untyped-call]

    def product(self) -> Callable[[], object]:
        """Return a function that computes a product of the MLP with the same operands."""
        weight, rows = self.mlp[0].detach().t(), self.input.detach()[0]
        out = torch.empty(len(rows), weight.shape[1], device=rows.device, dtype=rows.dtype)
        return lambda: torch.mm(rows, weight, out=out)

    @property
    def product_flops(self) -> int:
        return 2 * self.size.tokens * self.size.hidden * self.size.intermediate

    def _heads(self, one: Tensor) -> Tensor:
        return one.view(1, self.size.tokens, -1, HEAD_DIM).transpose(1, 2)

    def _turned(self, one: Tensor) -> Tensor:
        """Apply the rotary position embedding."""
        left, right = one.chunk(2, dim=-1)
        return one * self.cosines + torch.cat((-right, left), dim=-1) * self.sines


def _normed(values: Tensor, scale: Tensor) -> Tensor:
    """Apply RMS norm, computed in float32."""
    wide = values.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return scale * normed.to(values.dtype)
