"""Formats of numbers, times and states, the same in every front end.

Thousands have a comma, the percent sign a narrow no-break space, units a no-break space. Unknown
values are "n/a", never 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final

from jupyter_mntrain.model import quantities
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.node import Capacity, Condition
from jupyter_mntrain.model.records.number import NonFinite, Number

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import JobNumbers

ABSENT: Final = "n/a"
SPACE: Final = quantities.SPACE
NARROW: Final = "\u202f"

LONGEST: Final = 1e15
"""Numbers from here on are written with an exponent."""

NOT_FINITE: Final[dict[NonFinite, str]] = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "−∞"}

STATE_ICONS: Final[dict[JobState, str]] = {
    "pending": "◔",
    "starting": "◔",
    "running": "▶",
    "stopping": "■",
    "succeeded": "✓",
    "failed": "✕",
    "canceled": "■",
    "unknown": "?",
}
STATE_STYLES: Final[dict[JobState, str]] = {
    "running": "green",
    "succeeded": "green",
    "failed": "red",
    "unknown": "yellow",
}
LIVENESS_ICONS: Final = {"connecting": "◔", "up": "●", "suspect": "△", "lost": "⊠"}
LIVENESS_STYLES: Final = {"up": "green", "suspect": "yellow", "lost": "red"}

CONDITIONS: Final[dict[Condition | None, str]] = {
    "beside a job": "beside a job",
    "cut short": "cut short",
    "short of CPU": "while short of CPU",
}
"""What disturbed the measurement of a link."""


def fixed(value: float, digits: int) -> str:
    """Format with a fixed number of decimals; halves are rounded up, as in JavaScript.

    From 1e15 on, with an exponent.
    """
    if abs(value) >= LONGEST:
        return f"{value:.2e}"
    exact = Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{exact:,f}"


def count(value: float | None) -> str:
    """Format a whole number: 1,857."""
    return ABSENT if value is None else fixed(value, 0)


def rate(value: float | None) -> str:
    """Format tokens per second: three digits, or all digits of a whole number."""
    if value is None:
        return ABSENT
    size = abs(value)
    return fixed(value, 0 if size >= 99.95 or not size else 1 if size >= 9.995 else 2)


def short_count(value: float | None) -> str:
    """Format a count for charts: 0, 1,857, 10 k; 63.4 k from ten thousand on."""
    if value is None:
        return ABSENT
    if abs(value) < 1e4:
        return rate(value).removesuffix(".0")
    return f"{fixed(value / 1e3, 1).removesuffix('.0')}{SPACE}k"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a fraction 0..1: 40.9 %; <0.1 % instead of a rounded 0."""
    if value is None:
        return ABSENT
    least = 10.0**-digits
    if 0 < value * 100 < least:
        return f"<{NARROW}{fixed(least, digits)}{NARROW}%"
    return f"{fixed(100 * value, digits)}{NARROW}%"


def seconds(value: float | None) -> str:
    """Format a step time: 35.3 s; below a second in ms."""
    if value is None:
        return ABSENT
    if value < 1:
        return f"{fixed(1000 * value, 1 if value < 0.01 else 0)}{SPACE}ms"
    return f"{fixed(value, 1)}{SPACE}s"


def latency(value_s: float | None) -> str:
    """Format a link's latency: 25 ms, 0.4 ms, 25 µs."""
    if value_s is None:
        return ABSENT
    if value_s < 1e-4:
        return f"{fixed(1e6 * value_s, 0)}{SPACE}µs"
    return seconds(value_s)


def loss(value: Number | None) -> str:
    """Format a loss: 0.872, NaN, ∞."""
    if value is None:
        return ABSENT
    return NOT_FINITE[value] if isinstance(value, str) else fixed(value, 3)


def is_bad(value: Number | None) -> bool:
    """Whether a loss is NaN or infinite, which is shown in red."""
    return isinstance(value, str)


def not_finite(numbers: JobNumbers) -> str:
    """Say how often loss or gradient norm was NaN or infinite, and since when; empty if never."""
    if not numbers.not_finite:
        return ""
    steps = plural(numbers.not_finite, "step")
    first = count(numbers.first_not_finite_step)
    return f"NaN or infinite loss or gradient in {steps}, first in step {first}"


def skipped(numbers: JobNumbers) -> str:
    """Say how many steps were skipped, and the last of them; empty if none."""
    if not numbers.skipped:
        return ""
    return f"{plural(numbers.skipped, 'step')} skipped, last step {count(numbers.skipped_step)}"


def duration(value_s: float | None) -> str:
    """Format a duration in two units: 4 h 04 min, 1 min 05 s, 12 s."""
    if value_s is None:
        return ABSENT
    return quantities.duration_text(value_s)


_RANGES = (
    (90.0, 1.0, "s", 0),
    (5400.0, 60.0, "min", 0),
    (129_600.0, 3600.0, "h", 1),
    (inf, 86_400.0, "d", 1),
)
"""Below so many seconds: the unit's seconds, its name, and the digits after its point."""


def between(low_s: float, high_s: float) -> str:
    """Format a range of durations: 12 to 15 min; about 13 min, if both round to that."""
    factor, unit, digits = next(one[1:] for one in _RANGES if high_s < one[0])
    low, high = (fixed(max(0.0, one) / factor, digits) for one in (low_s, high_s))
    return f"about {high}{SPACE}{unit}" if low == high else f"{low} to {high}{SPACE}{unit}"


def finish(now_s: float, numbers: JobNumbers) -> str:
    """Format when a job is done: done at 14:05, in 12 to 15 min; with a date after today."""
    remaining_s = numbers.remaining_s or 0.0
    low_s, high_s = numbers.remaining_low_s, numbers.remaining_high_s
    left = duration(remaining_s)
    if low_s is not None and high_s is not None:
        left = between(low_s, high_s)
    now, end = time.localtime(now_s), time.localtime(now_s + remaining_s)
    is_today = (now.tm_year, now.tm_yday) == (end.tm_year, end.tm_yday)
    day = "" if is_today else f"on {end.tm_mday} {time.strftime('%b', end)} "
    return f"done {day}at {time.strftime('%H:%M', end)}, in {left}"


def clock(time_s: float) -> str:
    """Format the local time of day with seconds: 14:05:09."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def bit_rate(bytes_per_s: float | None) -> str:
    """Format a network speed, decimal: 941 Mbit/s, 9.41 Gbit/s."""
    if bytes_per_s is None:
        return ABSENT
    bits = bytes_per_s * 8
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= factor:
            return f"{_three_digits(bits / factor)}{SPACE}{unit}"
    return f"{fixed(bits, 0)}{SPACE}bit/s"


def byte_rate(bytes_per_s: float) -> str:
    """Format a disk speed, decimal: 40 MB/s, 1.2 GB/s; of many small files 24 kB/s."""
    if bytes_per_s < 1e5:
        return f"{fixed(bytes_per_s / 1e3, 0)}{SPACE}kB/s"
    if bytes_per_s >= 1e9:
        return f"{fixed(bytes_per_s / 1e9, 1)}{SPACE}GB/s"
    return f"{fixed(bytes_per_s / 1e6, 0 if bytes_per_s >= 1e7 else 1)}{SPACE}MB/s"


def flop_rate(flops_per_s: float | None) -> str:
    """Format FLOPs per second: 312 TFLOP/s, 98.5 GFLOP/s."""
    if flops_per_s is None:
        return ABSENT
    unit, size = ("TFLOP/s", 1e12) if flops_per_s >= 1e12 else ("GFLOP/s", 1e9)
    return f"{_three_digits(flops_per_s / size)}{SPACE}{unit}"


def memory(value_bytes: float | None) -> str:
    """Format the memory of machines and devices, binary: 23.7 GiB."""
    if value_bytes is None:
        return ABSENT
    gib = value_bytes / 2**30
    return (
        f"{fixed(gib, 1)}{SPACE}GiB" if gib >= 1 else f"{fixed(value_bytes / 2**20, 0)}{SPACE}MiB"
    )


def age(value_s: float) -> str:
    """Format an age in its largest unit: 12 s, 5 min, 3 h, 2 days."""
    seconds_ago = max(0, round(value_s))
    days = seconds_ago // 86_400
    if days:
        return f"{days:,}{SPACE}day{'' if days == 1 else 's'}"
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds_ago >= length:
            return f"{seconds_ago // length}{SPACE}{unit}"
    return f"{seconds_ago}{SPACE}s"


def capacity(*known: Capacity | None, now_s: float | None = None) -> str:
    """Format the capacity of links and how it is known: 941 Mbit/s, measured 3 days ago.

    Args:
        now_s: Unix time, for the age.
    """
    found = [one for one in known if one is not None]
    if not found:
        return "not measured"
    low, high = (bit_rate(end(one.bytes_per_s for one in found)) for end in (min, max))
    unit = SPACE + high.rpartition(SPACE)[2]
    rates = high if low == high else f"{low.removesuffix(unit)} to {high}"
    measured = [one for one in found if one.source == "measured"]
    exceeded = sum(one.is_exceeded for one in found)
    origins = ["given" if exceeded else "as given"] if len(measured) < len(found) else []
    origin = " or ".join(origins + ([_measured(measured, now_s)] if measured else []))
    some = "some " if exceeded < len(found) else ""
    told = f"{rates}, {f'{some}best seen, more than ' if exceeded else ''}{origin}"
    return f"{told}, slower now" if any(one.is_doubtful for one in found) else told


def _measured(found: Sequence[Capacity], now_s: float | None) -> str:
    """Say when links were measured, and what disturbed that: measured up to 3 days ago."""
    words, comma = "measured", ""
    oldest_s = min(one.time_s for one in found)
    if now_s is not None and oldest_s:
        newest = age(now_s - max(one.time_s for one in found))
        oldest = age(now_s - oldest_s)
        words, comma = f"measured {oldest if oldest == newest else f'up to {oldest}'} ago", ","
    conditions = [CONDITIONS[one.condition] for one in found if one.condition in CONDITIONS]
    if not conditions:
        return words
    some = "some " if len(conditions) < len(found) else ""
    return f"{words}{comma} {some}{' or '.join(sorted(set(conditions)))}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spans(numbers: Iterable[int]) -> str:
    """Format integers as ranges: 0–3, 6."""
    # Consecutive numbers are equally far from their places.
    runs = groupby(enumerate(sorted(numbers)), lambda one: one[1] - one[0])
    found = [[number for _, number in run] for _, run in runs]
    words = [str(s[0]) if len(s) == 1 else f"{s[0]}–{s[-1]}" for s in found]
    return ", ".join(words) or ABSENT


def _three_digits(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = fixed(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text
