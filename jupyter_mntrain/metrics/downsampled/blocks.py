"""Blocks: neighboring steps of one rank joined into one row, with means and extremes.

Agents keep them on disk, drivers in memory: a long job is a few thousand rows in both.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite

import msgspec

from jupyter_mntrain.metrics.downsampled.samples import (
    BLOCK,
    EXTREMES,
    FIRST,
    LAST,
    LINK_BLOCK,
    LOWS,
    MEANS,
    PAUSES,
    SUMS,
    UNKNOWN,
    Blocks,
)
from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import LinkSample, RankStep
from jupyter_mntrain.model.records.number import carried
from jupyter_mntrain.telemetry import formulas

FACTOR = 4
"""Blocks have 1, 4, 16, … steps, so that the blocks of different ranks align."""

WIDTH = len(BLOCK)
AT = {name: index for index, name in enumerate(BLOCK)}
TIME = AT["time_s"]

Row = tuple[float, ...]
Rule = Callable[[Sequence[float]], float]


def busy_rate(step: RankStep, index: int) -> float:
    """Return the model FLOPs per second of computing, or of the whole step where that is unknown.

    During warm-up, it is always that of the whole step.

    Args:
        index: how many steps of the attempt the rank made before.
    """
    seconds = step.step_s
    if step.compute_s and index >= WARM_UP_STEPS:
        seconds = min(step.compute_s, step.step_s)
    return UNKNOWN if step.flops is None or seconds <= 0 else step.flops / seconds


def row_of(step: RankStep, index: int, position: float = UNKNOWN) -> Row:
    """Return the block of a single step.

    Args:
        index: how many steps of the attempt the rank made before.
        position: offset after its line in the journal.
    """
    told = (step.loss, step.grad_norm)
    is_finite = step.is_skipped or all(one is None or isfinite(float(one)) for one in told)
    loss = UNKNOWN if step.loss is None else float(step.loss)
    figures = _figures(step, loss)
    return (
        step.time_s,
        float(step.step),
        position,
        step.step_s,
        _known(step.tokens),
        loss,
        _known(step.compute_s),
        _known(step.optimizer_s),
        _known(step.coding_s),
        _known(step.flops),
        float(sum(step.sent_bytes.values())) if step.sent_bytes else UNKNOWN,
        float(sum(step.received_bytes.values())) if step.received_bytes else UNKNOWN,
        _known(step.memory_bytes),
        busy_rate(step, index),
        loss,
        UNKNOWN if is_finite else float(step.step),
        0.0 if is_finite else 1.0,
        step.data_s,
        step.evaluation_s,
        step.sampling_s,
        step.saving_s,
        *figures,
        *figures,
    )


def _figures(step: RankStep, loss: float) -> tuple[float, ...]:
    """Return the figures whose extremes are kept, as in :data:`EXTREMES`; finite ones only."""
    seconds, tokens, computing = step.step_s, step.tokens, step.compute_s
    pace = share = flops = UNKNOWN
    if tokens is not None and computing:
        pace = _finite(formulas.throughput(tokens, computing))
    if computing is not None and seconds > 0:
        share = min(1.0, (computing + (step.optimizer_s or 0.0)) / seconds)
    if step.flops is not None and seconds > 0:
        flops = step.flops / seconds
    return (
        seconds,
        UNKNOWN if tokens is None else _finite(formulas.throughput(tokens, seconds)),
        pace,
        flops,
        share,
        loss if isfinite(loss) else UNKNOWN,
    )


def _known(value: float | None) -> float:
    return UNKNOWN if value is None else float(value)


def _finite(value: float | None) -> float:
    return UNKNOWN if value is None or not isfinite(value) else value


def _last(values: Sequence[float]) -> float:
    return values[-1]


def _first(values: Sequence[float]) -> float:
    return next((value for value in values if value != UNKNOWN), UNKNOWN)


def _mean(values: Sequence[float]) -> float:
    if UNKNOWN not in values:
        return sum(values) / len(values)
    known = [value for value in values if value != UNKNOWN]
    return sum(known) / len(known) if known else UNKNOWN


def lowest(values: Sequence[float]) -> float:
    """Return the lowest of the known values."""
    low = min(values)
    return low if low != UNKNOWN else min((v for v in values if v != UNKNOWN), default=UNKNOWN)


def _rule(name: str) -> Rule:
    for names, rule in (
        (LAST, _last),
        (MEANS, _mean),
        (FIRST, _first),
        (SUMS, sum),
        (LOWS, lowest),
    ):
        if name in names:
            return rule
    return max  # what is not known is less than all


RULES: tuple[Rule, ...] = tuple(map(_rule, BLOCK))
LINK_RULES: tuple[Rule, ...] = (_last, *[sum] * (len(LINK_BLOCK) - 1))


def joined(rows: Sequence[Row], rules: Sequence[Rule] = RULES) -> Row:
    """Join several blocks into one."""
    columns = zip(*rows, strict=True)
    return tuple(rule(column) for rule, column in zip(rules, columns, strict=True))


def link_row(sample: LinkSample) -> Row:
    """Return the block of one sample of an interface."""
    return (
        sample.time_s,
        sample.interval_s,
        float(sample.sent_bytes),
        float(sample.received_bytes),
    )


class StepBlocks:
    """All blocks of one rank in memory, ``size`` steps each.

    Args:
        most: with more, :data:`FACTOR` of them are joined to one.
    """

    __slots__ = ("_data", "_length", "size")

    def __init__(self, size: int = 1, data: array[float] | None = None) -> None:
        self.size = size
        self._data = array("d") if data is None else data
        self._length = len(self._data) // WIDTH

    def __len__(self) -> int:
        return self._length

    @property
    def steps(self) -> int:
        """The number of steps in these blocks."""
        return self._length * self.size

    def __getitem__(self, index: int) -> Row:
        begin = range(self._length)[index] * WIDTH
        return tuple(self._data[begin : begin + WIDTH])

    def time_s(self, index: int) -> float:
        """Return when a block ended, without copying the rest of it."""
        return self._data[index * WIDTH + TIME]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StepBlocks) and self.size == other.size and list(self) == list(other)
        )

    __hash__ = None  # type: ignore[assignment]  # equal by content, like a list

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(self._length))

    def snapshot(self) -> StepBlocks:
        """Return a snapshot, which later additions do not change; copies nothing."""
        taken = StepBlocks(self.size, self._data)
        taken._length = self._length
        return taken

    def extended(self, rows: Sequence[Row], most: int) -> StepBlocks:
        """Append single steps, joined into blocks; their number is a multiple of ``size``."""
        for begin in range(0, len(rows), self.size):
            block = rows[begin : begin + self.size]
            self._data.extend(block[0] if self.size == 1 else joined(block))
        self._length = len(self._data) // WIDTH
        # A snapshot keeps what it had: this makes a new object.
        is_long = self._length > most and self._length % FACTOR == 0
        return self.downsampled(FACTOR) if is_long else self

    def downsampled(self, factor: int) -> StepBlocks:
        """Return coarser blocks, each joined from ``factor`` of these; the last may have fewer."""
        data = array("d")
        for begin in range(0, self._length, factor):
            end = min(begin + factor, self._length)
            data.extend(joined([self[index] for index in range(begin, end)]))
        return StepBlocks(self.size * factor, data)


def packed(rows: Iterable[Row]) -> bytes:
    """Pack rows into the bytes that :class:`Blocks` carries."""
    data = array("d")
    for row in rows:
        data.extend(row)
    return as_bytes(data)


def as_bytes(data: array[float]) -> bytes:
    """Return the floats as little-endian bytes on any machine."""
    if sys.byteorder == "big":
        data = array("d", data)
        data.byteswap()
    return data.tobytes()


def from_bytes(content: bytes) -> array[float]:
    """Return the floats from what :func:`as_bytes` made.

    Raises:
        ValueError: it is not whole floats.
    """
    data = array("d")
    data.frombytes(content)
    if sys.byteorder == "big":
        data.byteswap()
    return data


def unpacked(blocks: Blocks) -> StepBlocks:
    """Unpack the blocks of a rank that an agent has sent.

    Raises:
        ValueError: they are not whole rows, or of no size.
    """
    data = from_bytes(blocks.data)
    if len(data) % WIDTH or blocks.size < 1 or (data and blocks.width != WIDTH):
        raise ValueError("not whole blocks, or those of another version")
    return StepBlocks(blocks.size, data)


def mean_step(
    row: Row, rank: Rank, sent: Mapping[int, float], received: Mapping[int, float]
) -> RankStep:
    """Return a block as one average step, to which all formulas of a step apply.

    Args:
        sent: bytes per step by peer, whose shares the block's bytes have; ``received`` likewise.
    """
    time_s, step, _, step_s, tokens, loss, *parts, flops, out, in_, memory = row[
        : AT["memory_bytes"] + 1
    ]
    compute_s, optimizer_s, coding_s = parts
    return RankStep(
        time_s=time_s,
        rank=rank,
        step=int(step),
        step_s=step_s,
        tokens=_or_none(tokens),  # type: ignore[arg-type]  # a mean
        loss=None if loss == UNKNOWN else carried(loss),
        compute_s=_or_none(compute_s),
        optimizer_s=_or_none(optimizer_s),
        coding_s=_or_none(coding_s),
        flops=_or_none(flops),
        sent_bytes=_shared(out, sent),  # type: ignore[arg-type]
        received_bytes=_shared(in_, received),  # type: ignore[arg-type]
        memory_bytes=_or_none(memory),  # type: ignore[arg-type]
    )


def single_steps(row: Row, count: int, rank: Rank) -> list[RankStep]:
    """Expand a block into ``count`` equal steps with its mean values."""
    mean = mean_step(row, rank, {}, {})
    pauses = {name: row[AT[name]] / count for name in PAUSES}
    each_s = mean.step_s + sum(pauses.values()) - pauses["data_s"]
    return [
        msgspec.structs.replace(
            mean,
            step=mean.step - count + number,
            time_s=mean.time_s - each_s * (count - number),
            **pauses,
        )
        for number in range(1, count + 1)
    ]


def extremes(row: Row) -> dict[str, float]:
    """Return the lowest and highest figures of a block, named ``low_…`` and ``high_…``."""
    return dict(zip(BLOCK[-2 * len(EXTREMES) :], row[-2 * len(EXTREMES) :], strict=True))


def _or_none(value: float) -> float | None:
    return None if value == UNKNOWN else value


def _shared(total: float, shares: Mapping[int, float]) -> dict[int, float]:
    whole = sum(shares.values())
    if total == UNKNOWN or whole <= 0:
        return {}
    return {peer: total * share / whole for peer, share in shares.items()}
