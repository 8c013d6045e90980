"""Transfers: how activations and gradients are sent between stages, and what that takes. Pure.

A message has a static size, so that it needs no header: the scales of all tokens, then their
values. 8 bits have a scale per token; fewer bits have one per tile of a token's values, and zeros
fill up the last tile of a token.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from jupyter_mntrain.model.errors import RecipeError

Transfer = Literal["none", "bfloat16", "int8", "int8-int4", "int4"]
"""How a boundary between two stages sends: activations and gradients, or one name for both."""

Format = Literal["none", "bfloat16", "int8", "int4"]
"""How the values of one direction are sent; ``none`` sends them as they are computed."""


class Formats(NamedTuple):
    """The formats of a boundary.

    Args:
        forward: of activations.
        backward: of gradients.
    """

    forward: Format
    backward: Format


FORMATS: Final[dict[Transfer, Formats]] = {
    "none": Formats("none", "none"),
    "bfloat16": Formats("bfloat16", "bfloat16"),
    "int8": Formats("int8", "int8"),
    "int8-int4": Formats("int8", "int4"),
    "int4": Formats("int4", "int4"),
}


class Code(NamedTuple):
    """How a format writes values as whole numbers of a scale.

    Args:
        bits: of a value, 4 to 8.
        tile: most values that share a scale, a power of two from 16; 0 = all of a token.
        directions: most directions of a message's values that are sent apart, in 8 bits: those in
            which they are largest. Only the rest is in ``bits``.
    """

    bits: int
    tile: int = 0
    directions: int = 0

    @property
    def most(self) -> int:
        """The largest whole number; the least is its negative, so that zero is exact."""
        return (1 << (self.bits - 1)) - 1

    def tile_of(self, hidden: int) -> int:
        """Return how many values share a scale, of tokens with ``hidden`` values."""
        if not self.tile:
            return hidden
        return min(self.tile, max(16, 1 << (hidden - 1).bit_length()))

    def tiles_of(self, hidden: int) -> int:
        """Return the number of scales per token."""
        return -(-hidden // self.tile_of(hidden))

    def directions_of(self, hidden: int) -> int:
        """Return how many directions are sent apart: at most half a bit per value for them."""
        return min(self.directions, hidden // 16)

    def scales_of(self, tokens: int, hidden: int) -> int:
        """Return the number of scales of a message: of directions, of tokens' parts in them, and of
        tiles.
        """
        apart = self.directions_of(hidden)
        return tokens * self.tiles_of(hidden) + (apart + tokens if apart else 0)


CODES: Final[dict[Format, Code]] = {"int8": Code(8), "int4": Code(4, tile=64, directions=8)}

VERSION: Final = "1"
"""Of what messages look like, and of their random bits: ranks that exchange them must agree."""

SCALE_BYTES: Final = 2
"""A scale is a bfloat16: as wide a range as float32, for residual streams that grow."""
BFLOAT16_BYTES: Final = 2


def wire_bytes(form: Format, tokens: int, hidden: int, width: int) -> int:
    """Return the size of a message.

    Args:
        tokens: of a microbatch, padding included.
        hidden: values per token.
        width: bytes of a value as it is computed.
    """
    if form == "none":
        return tokens * hidden * width
    if form == "bfloat16":
        return tokens * hidden * BFLOAT16_BYTES
    code = CODES[form]
    packed = tokens * code.tiles_of(hidden) * (code.tile_of(hidden) * code.bits // 8)
    apart = code.directions_of(hidden) * (hidden + tokens)
    return SCALE_BYTES * code.scales_of(tokens, hidden) + apart + packed


def boundary_transfers(
    given: Transfer | Sequence[Transfer], ranks: Sequence[int], nodes: Sequence[Hashable]
) -> tuple[Transfer, ...]:
    """Return how each boundary sends, from that of the first two stages on.

    One name is for every boundary between nodes. A list says each by itself. Within a rank nothing
    is sent.

    Args:
        given: what a recipe says; checked by :func:`check_transfers`.
        ranks: of each stage, as indices in their pipeline.
        nodes: of each rank of the pipeline.
    """
    if not isinstance(given, str):
        return tuple(given)
    return tuple(given if nodes[one] != nodes[other] else "none" for one, other in pairwise(ranks))


def told_transfers(
    transfers: Sequence[Transfer], *, tokens: int, hidden: int, width: int
) -> Iterator[str]:
    """Yield, for the log, which boundaries send in fewer bits, and how many of the bytes they send.

    Args:
        transfers: of all boundaries.
        tokens: of a microbatch.
        hidden: values per token.
        width: bytes of a value as it is computed.
    """
    whole = wire_bytes("none", tokens, hidden, width)
    for name in dict.fromkeys(one for one in transfers if one != "none"):
        pairs = [f"{one} and {one + 1}" for one, other in enumerate(transfers) if other == name]
        shares = [wire_bytes(form, tokens, hidden, width) / whole for form in FORMATS[name]]
        if min(shares) >= 1.0:
            yield f"{name} between stages {', '.join(pairs)}: as they compute"
            continue
        told = [
            f"{what} take {share:.0%}"
            for what, share in zip(("activations", "gradients"), shares, strict=True)
        ]
        yield f"{name} between stages {', '.join(pairs)}: {' and '.join(told)} of the bytes"


def check_transfers(given: Transfer | Sequence[Transfer], ranks: Sequence[int]) -> None:
    """Refuse a list that is not one per boundary, or that compresses what is not sent.

    Args:
        ranks: of each stage, as indices in their pipeline.

    Raises:
        RecipeError: naming the boundary and what to change.
    """
    if isinstance(given, str):
        return
    shown = f"pipeline.transfer = [{', '.join(given)}]"
    between = len(ranks) - 1
    if len(given) != between:
        cause = f"{shown}: {len(given)} of them for {between} boundaries between {len(ranks)} "
        cause += f"pipeline stage{'s' * (len(ranks) > 1)}"
        fix = f'give {between}, or one for all of them: transfer = "int8"'
        raise RecipeError(cause, fix=fix if between else 'use transfer = "none"')
    for stage, (one, other) in enumerate(pairwise(ranks)):
        if one == other and given[stage] != "none":
            cause = f"{shown}: stages {stage} and {stage + 1} are both on rank {one}, so nothing "
            cause += "is sent between them"
            raise RecipeError(cause, fix=f'make number {stage + 1} of the list "none"')
