"""Transfers: how activations and gradients are sent between stages, and what that takes. Pure.

A message has a static size, so that it needs no header: the scales of all tokens, then their
values. 8 bits have a scale per token. 4 bits have one per tile of a token's values, and the last
tile of a token is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
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

VERSION: Final = "1"
"""Of what messages look like, and of their random bits: ranks that exchange them must agree."""

TILE: Final = 64
"""Most values that share a scale in 4 bits: 4.25 bits per value."""
SCALE_BYTES: Final = 2
"""A scale is a bfloat16: as wide a range as float32, for residual streams that grow."""
BFLOAT16_BYTES: Final = 2


def tile_of(hidden: int) -> int:
    """Return how many values share a scale in 4 bits: a power of two, for the rotation."""
    return min(TILE, 1 << max(1, (hidden - 1).bit_length()))


def tiles_of(hidden: int) -> int:
    """Return the number of tiles per token; zeros fill up the last one."""
    return -(-hidden // tile_of(hidden))


def wire_bytes(form: Format, tokens: int, hidden: int, width: int) -> int:
    """Return the size of a message.

    Args:
        tokens: of a microbatch, padding included.
        hidden: values per token.
        width: bytes of a value as it is computed.
    """
    match form:
        case "none":
            return tokens * hidden * width
        case "bfloat16":
            return tokens * hidden * BFLOAT16_BYTES
        case "int8":
            return tokens * (SCALE_BYTES + hidden)
        case "int4":
            return tokens * tiles_of(hidden) * (SCALE_BYTES + tile_of(hidden) // 2)


def boundary_transfers(
    given: Transfer | Sequence[Transfer], ranks: Sequence[int], nodes: Sequence[str]
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
    return tuple(
        given if nodes[one] != nodes[other] else "none" for one, other in pairwise(ranks)
    )


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
            cause = f"{shown}: stages {stage} and {stage + 1} are both on rank {one}, so nothing is "
            cause += "sent between them"
            raise RecipeError(cause, fix=f'make number {stage + 1} of the list "none"')
