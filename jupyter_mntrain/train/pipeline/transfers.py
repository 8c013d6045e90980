"""Transfers between stages in fewer bits: the codec, and the two ends of a boundary.

A message is one tensor of bytes, whose size :func:`jupyter_mntrain.recipe.transfers.wire_bytes`
tells: scales, then values. They are dithered: sender and receiver add and subtract the same random
numbers, so that what arrives is right on average, whatever is sent, with half the noise of rounding
up or down at random. (Rounded to the nearest, gradients in 4 bits cost three times as much loss;
subtractive dither: Roberts 1962, doi:10.1109/TIT.1962.1057702.) The numbers follow from seed, step,
microbatch, boundary and direction, so that schedules, microbatches in flight, restarts and resumes
change no bit.

Before 4 bits, what a message has in the few directions in which it is large is sent in 8. Of a
small Llama's activations 87 % of the squares are in 8 of 128 directions, and 4 bits for the rest
lose as little as 5 bits for all; outlier channels and tokens are such directions, too, so that they
do not widen the scales of the others. Nothing is kept from one message to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional

from jupyter_mntrain.recipe.transfers import (
    CODES,
    FORMATS,
    SCALE_BYTES,
    Code,
    Format,
    Transfer,
    wire_bytes,
)

_ROOM: Final = 1.004
"""By how much a scale is larger than needed, since a bfloat16 may be as much smaller (2 ** -8)."""

_LEAST: Final = float(torch.finfo(torch.bfloat16).tiny)
"""Smaller scales are 0, as are values of which they would be."""

_DITHER_BITS: Final = 16
"""Random bits of a value: a mean is off by 2 ** -17 of a step."""

Encode = Callable[[torch.Tensor, Format, torch.Tensor | None], torch.Tensor]
Decode = Callable[[torch.Tensor, Format, torch.Tensor, torch.Tensor | None], None]


def encode(values: torch.Tensor, form: Format, dither: torch.Tensor | None = None) -> torch.Tensor:
    """Pack values into a message.

    Where a value is not finite, all that share its scale become NaN, or the whole message if it has
    directions.

    Args:
        values: (…, hidden), floating-point.
        form: not ``none``.
        dither: from :func:`dither_of`; ``None`` rounds to the nearest value.

    Returns:
        (n,), uint8; n as :func:`~jupyter_mntrain.recipe.transfers.wire_bytes` says.
    """
    hidden = values.shape[-1]
    rows = values.reshape(-1, hidden)
    size = wire_bytes(form, len(rows), hidden, values.element_size())
    message = torch.empty(size, dtype=torch.uint8, device=values.device)
    if form == "bfloat16":
        message.view(torch.bfloat16).view(rows.shape).copy_(rows)
        return message
    code = CODES[form]
    rows = rows.float()
    scales, packed = _parts(message, code.scales_of(len(rows), hidden))
    if count := code.directions_of(hidden):
        apart, scales, packed = _apart(scales, packed, count, hidden, len(rows))
        apart.write_directions(_directions(rows, count))
        rows = rows - apart.write_parts(rows)
    levels, tile_scales = _rounded(_tiled(rows, code), code.most, dither)
    scales.copy_(tile_scales.view(-1))
    if code.bits == 8:
        packed.view(torch.int8).view(levels.shape).copy_(levels)
    else:
        _pack(levels.add_(code.most + 1).to(torch.uint8), code.bits, packed)
    return message


def decode(
    message: torch.Tensor, form: Format, into: torch.Tensor, dither: torch.Tensor | None = None
) -> None:
    """Unpack a message from :func:`encode`, in place.

    Args:
        into: (…, hidden), contiguous, of the shape that was encoded; floating-point.
        dither: with which it was encoded.
    """
    hidden = into.shape[-1]
    rows = into.view(-1, hidden)
    if form == "bfloat16":
        rows.copy_(message.view(torch.bfloat16).view(rows.shape))
        return
    code = CODES[form]
    scales, packed = _parts(message, code.scales_of(len(rows), hidden))
    found: torch.Tensor | None = None
    if count := code.directions_of(hidden):
        apart, scales, packed = _apart(scales, packed, count, hidden, len(rows))
        found = apart.values()
    tiles, tile = len(scales), code.tile_of(hidden)
    if code.bits == 8:
        levels = packed.view(torch.int8).view(tiles, tile).float()
    else:
        levels = _unpacked(packed, code.bits, tiles, tile).float().sub_(code.most + 1)
    if dither is not None:
        levels.add_(dither.view(levels.shape), alpha=-(2.0**-_DITHER_BITS))
    rest = levels.mul_(scales.float().unsqueeze(-1)).view(len(rows), -1)[:, :hidden]
    rows.copy_(rest if found is None else found.add_(rest))


class _Apart(NamedTuple):
    """What a message has in 8 bits: directions, and each token's parts in them. Views of it.

    Args:
        directions: (count, hidden), int8.
        parts: (tokens, count), int8.
        direction_scales, part_scales: one for each row.
    """

    directions: torch.Tensor
    parts: torch.Tensor
    direction_scales: torch.Tensor
    part_scales: torch.Tensor

    def write_directions(self, directions: torch.Tensor) -> None:
        levels, scales = _rounded(directions)
        self.directions.copy_(levels)
        self.direction_scales.copy_(scales)

    def write_parts(self, rows: torch.Tensor) -> torch.Tensor:
        """Write the tokens' parts, and return the values that are sent by them."""
        levels, scales = _rounded(rows @ self._directions().T)
        self.parts.copy_(levels)
        self.part_scales.copy_(scales)
        return self.values()

    def values(self) -> torch.Tensor:
        """Return what is sent in these directions, (tokens, hidden), float32."""
        return (self.parts.float() * self.part_scales.float()) @ self._directions()

    def _directions(self) -> torch.Tensor:
        return self.directions.float() * self.direction_scales.float()


def _apart(
    scales: torch.Tensor, packed: torch.Tensor, count: int, hidden: int, tokens: int
) -> tuple[_Apart, torch.Tensor, torch.Tensor]:
    """Return what is apart in a message, and the scales and values of the rest; all are views."""
    sizes = [count, tokens, len(scales) - count - tokens]
    direction_scales, part_scales, scales = torch.split(scales, sizes)
    sizes = [count * hidden, tokens * count, len(packed) - count * (hidden + tokens)]
    directions, parts, packed = torch.split(packed, sizes)
    apart = _Apart(
        directions.view(torch.int8).view(count, hidden),
        parts.view(torch.int8).view(tokens, count),
        direction_scales.view(count, 1),
        part_scales.view(tokens, 1),
    )
    return apart, scales, packed


def _rounded(
    tiles: torch.Tensor, most: int = 127, dither: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values as whole numbers of a scale each, and the scales, (tiles, 1); float32.

    Args:
        tiles: (tiles, values), float32.
        most: the largest whole number.
    """
    scales = tiles.abs().amax(-1, keepdim=True).mul_(_ROOM / most).to(torch.bfloat16).float()
    scales = scales * (scales >= _LEAST)
    levels = tiles * scales.clamp_min(_LEAST).reciprocal_()
    if dither is not None:
        levels.add_(dither.view(levels.shape), alpha=2.0**-_DITHER_BITS)
    return levels.round_(), scales


def _directions(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return directions in which values are large, (count, hidden), orthogonal and of length 1.

    One pass of the power method, from random ones. It need not find the largest: what is not in
    these directions is sent with the rest. Of fewer tokens than directions, some are shorter.
    """
    begin = _hashes(count * rows.shape[-1], 0, 0, rows.device).view(count, -1)
    parts = begin.float() @ rows.T
    # Divided by the largest, as squares of very large or small numbers would not be any.
    found = (parts / parts.abs().amax(-1, keepdim=True).clamp_min(_LEAST)) @ rows
    found = found / found.abs().amax(-1, keepdim=True).clamp_min(_LEAST)
    found = found / found.norm(dim=-1, keepdim=True).clamp_min(_LEAST)
    products = found @ found.T + _SHORTER * torch.eye(count, device=rows.device)
    triangle, _ = torch.linalg.cholesky_ex(products)
    solved: torch.Tensor = torch.linalg.solve_triangular(triangle, found, upper=False)
    return solved


_SHORTER: Final = 1e-6
"""Added to squares of lengths before they are made 1, so that what is 0 can stay it."""


def dither_of(
    shape: Sequence[int], form: Format, key: Sequence[int], device: torch.device
) -> torch.Tensor | None:
    """Return what is added to each value before it is rounded, and subtracted where it arrives.

    int16, in 2 ** -16 of a step: from half a step below to half a step above. The same on every
    device: hashes of the values' places (lowbias32 by C. Wellons), of which each makes two.

    Args:
        shape: of the values.
        key: seed, step, microbatch and the like: nothing else decides the numbers.

    Returns:
        (n,), with those of the zeros that fill up tiles; ``None`` if nothing is rounded to a whole
        number of a scale.
    """
    if form not in CODES:
        return None
    hidden, code = shape[-1], CODES[form]
    count = math.prod(shape[:-1]) * code.tiles_of(hidden) * code.tile_of(hidden)
    begin, turn = _signed(np.random.SeedSequence(tuple(key)).generate_state(2).tolist())
    return _hashes(count, begin, turn, device)


def _hashes(count: int, begin: int, turn: int, device: torch.device) -> torch.Tensor:
    """Return random numbers, (count,), int16."""
    words = torch.arange(-(-count // 2), dtype=torch.int32, device=device)
    # Apart from 0, of which the hash is 0, and from each other.
    words.mul_(_GOLDEN).add_(begin)
    for shift, factor in ((16, _FIRST), (15, _SECOND)):
        words.bitwise_xor_((words >> shift).bitwise_and_((1 << (32 - shift)) - 1))
        words.mul_(factor).bitwise_xor_(turn)
    words.bitwise_xor_((words >> 16).bitwise_and_(0xFFFF))
    return words.view(torch.int16)[:count]


def _signed(words: Sequence[int]) -> list[int]:
    """Return numbers of 32 bits as torch's int32 has them."""
    return [one - 2**32 if one >= 2**31 else one for one in words]


_GOLDEN, _FIRST, _SECOND = _signed((0x9E3779B9, 0x7FEB352D, 0x846CA68B))


def _parts(message: torch.Tensor, scales: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of a message's scales, (scales,), and of its values, as bytes."""
    return message[: scales * SCALE_BYTES].view(torch.bfloat16), message[scales * SCALE_BYTES :]


def _tiled(rows: torch.Tensor, code: Code) -> torch.Tensor:
    """Return the values that share a scale, row by row: (tiles, values)."""
    hidden = rows.shape[-1]
    tile = code.tile_of(hidden)
    if missing := -hidden % tile:
        rows = functional.pad(rows, (0, missing))
    return rows.view(-1, tile)


def _pack(numbers: torch.Tensor, bits: int, packed: torch.Tensor) -> None:
    """Write numbers below 2 ** ``bits``: the low four bits by twos, then each other bit by eights.

    Args:
        numbers: (tiles, values), uint8.
        packed: as many bytes as they take.
    """
    low, high = numbers.chunk(2, dim=-1)
    half = low.numel()
    torch.bitwise_or(low & 15, high << 4, out=packed[:half].view(low.shape))
    for bit in range(4, bits):
        planes = packed[half : half + numbers.numel() // 8].view(len(numbers), -1)
        half += planes.numel()
        planes.zero_()
        for place, part in enumerate(numbers.chunk(8, dim=-1)):
            planes.bitwise_or_(((part >> bit) & 1) << place)


def _unpacked(packed: torch.Tensor, bits: int, tiles: int, tile: int) -> torch.Tensor:
    """Return the numbers, (tiles, values), uint8."""
    numbers = torch.empty((tiles, tile), dtype=torch.uint8, device=packed.device)
    low, high = numbers.chunk(2, dim=-1)
    half = low.numel()
    both = packed[:half].view(low.shape)
    low.copy_(both & 15)
    high.copy_(both >> 4)
    for bit in range(4, bits):
        planes = packed[half : half + numbers.numel() // 8].view(tiles, -1)
        half += planes.numel()
        for place, part in enumerate(numbers.chunk(8, dim=-1)):
            part.bitwise_or_(((planes >> place) & 1) << bit)
    return numbers


def signal_and_noise(values: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    """Return the sums of squares of what was sent, and of what was lost by it: (2,), float32."""
    sent = values.float()
    return torch.stack([sent.square().sum(), (sent - received.float()).square().sum()])


# The ends of a boundary: what a stage sends to the next or the previous one, or receives from it.


CHECKED_EVERY: Final = 20
"""Every so many steps a rank compares what it sends with what is received: one microbatch of each
boundary, which takes as long as decoding it."""


class Comparison(NamedTuple):
    """What was sent of one microbatch, compared with what is received of it.

    Args:
        boundary: the stage before it.
        is_gradient: else activations.
        sums: from :func:`signal_and_noise`.
    """

    boundary: int
    is_gradient: bool
    sums: torch.Tensor


@dataclass
class Numbering:
    """Where a pipeline is in its training, by which its messages are numbered.

    Args:
        seed: the recipe's.
        step: finished steps.
        first: number of the schedule's first microbatch among all of the step.
    """

    seed: int
    step: int = 0
    first: int = 0

    def is_checked(self, microbatch: int) -> bool:
        """Whether what is sent of a microbatch is compared: of one in some steps."""
        return not (microbatch or self.step % CHECKED_EVERY)


@dataclass
class End:
    """One direction of a boundary, at the stage that sends or at the one that receives.

    Args:
        boundary: the stage before it.
        is_gradient: else activations.
        compiles: run the codec through torch.compile.
    """

    boundary: int
    is_gradient: bool
    form: Format
    numbering: Numbering
    compiles: bool = False
    compared: list[Comparison] = field(default_factory=list)
    _buffers: dict[int, torch.Tensor] = field(default_factory=dict)
    """Of messages, by microbatch; used again in every step, as torch does with its own."""
    _into: dict[int, torch.Tensor] = field(default_factory=dict)
    """torch's buffers of the microbatches that are on their way."""

    def send(self, operations: Sequence[dist.P2POp], microbatch: int) -> None:
        """Replace what is sent by messages."""
        for one in operations:
            one.tensor = self._encoded(one.tensor, microbatch)

    def receive(self, operations: Sequence[dist.P2POp], microbatch: int) -> None:
        """Receive messages in place of what was sent."""
        for one in operations:
            into = one.tensor
            if microbatch not in self._buffers:
                tokens, hidden = into.numel() // into.shape[-1], into.shape[-1]
                size = wire_bytes(self.form, tokens, hidden, into.element_size())
                made = torch.empty(size, dtype=torch.uint8, device=into.device)
                self._buffers[microbatch] = made
            self._into[microbatch], one.tensor = into, self._buffers[microbatch]

    def unpack(self, microbatch: int) -> None:
        """Write what has been received into torch's buffer."""
        into = self._into.pop(microbatch).detach()
        dither = self._dither(into, microbatch)
        with torch.no_grad():
            self._codec[1](self._buffers[microbatch], self.form, into, dither)

    def take_compared(self) -> list[Comparison]:
        """Return what has been compared since the last call."""
        taken, self.compared = self.compared, []
        return taken

    def _encoded(self, values: torch.Tensor, microbatch: int) -> torch.Tensor:
        values = values.detach()
        dither = self._dither(values, microbatch)
        encoding, decoding = self._codec
        with torch.no_grad():
            message = encoding(values, self.form, dither)
            if self.numbering.is_checked(microbatch):
                received = torch.empty_like(values, memory_format=torch.contiguous_format)
                decoding(message, self.form, received, dither)
                sums = signal_and_noise(values, received)
                self.compared.append(Comparison(self.boundary, self.is_gradient, sums))
        return message

    def _dither(self, values: torch.Tensor, microbatch: int) -> torch.Tensor | None:
        number = self.numbering
        place = (number.first + microbatch, self.boundary, self.is_gradient)
        key = (number.seed, number.step, *map(int, place))
        return dither_of(values.shape, self.form, key, values.device)

    @property
    def _codec(self) -> tuple[Encode, Decode]:
        return (_compiled(encode), _compiled(decode)) if self.compiles else (encode, decode)


@cache
def _compiled(function: Any) -> Any:
    """Return a function that torch has fused into few kernels."""
    return torch.compile(function, dynamic=False)


class Ends(NamedTuple):
    """What a stage exchanges in fewer bits; ``None`` where it is sent as it is computed."""

    activations_in: End | None = None
    activations_out: End | None = None
    gradients_in: End | None = None
    gradients_out: End | None = None


AS_COMPUTED: Final = Ends()


def ends_of(
    stage: int, transfers: Sequence[Transfer], numbering: Numbering, *, compiles: bool
) -> Ends:
    """Return the ends of the boundaries before and after a stage.

    Args:
        transfers: of all boundaries, from that of the first two stages on.
    """

    def end(boundary: int, *, is_gradient: bool) -> End | None:
        if not 0 <= boundary < len(transfers):
            return None
        form = FORMATS[transfers[boundary]][is_gradient]
        if form == "none":
            return None
        return End(boundary, is_gradient, form, numbering, compiles)

    return Ends(
        activations_in=end(stage - 1, is_gradient=False),
        activations_out=end(stage, is_gradient=False),
        gradients_in=end(stage, is_gradient=True),
        gradients_out=end(stage - 1, is_gradient=True),
    )
