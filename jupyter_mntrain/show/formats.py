"""Formats of numbers, times and states, the same everywhere.

Thousands have a comma, the percent sign a narrow no-break space, units a no-break space. Unknown
values are "n/a", never 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.model.records.number import NonFinite, Number

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import JobNumbers

ABSENT: Final = "n/a"
NARROW: Final = "\u202f"
SPACE: Final = "\u00a0"

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


def one_line(text: str) -> str:
    """Text on one line, without control characters."""
    return "".join(one if one.isprintable() else "\ufffd" for one in " ".join(text.split()))


def fixed(value: float, digits: int) -> str:
    """Fixed number of decimals; halves are rounded up, as in JavaScript. From 1e15 on with an
    exponent.
    """
    if abs(value) >= LONGEST:
        return f"{value:.2e}"
    exact = Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{exact:,f}"


def count(value: float | None) -> str:
    """A whole number: 1,857."""
    return ABSENT if value is None else fixed(value, 0)


def rate(value: float | None) -> str:
    """Tokens per second: whole; below ten with one decimal."""
    return ABSENT if value is None else fixed(value, 1 if abs(value) < 10 else 0)


def short_count(value: float | None) -> str:
    """For charts: 1,857, but 63.4 k from ten thousand on."""
    if value is None:
        return ABSENT
    return rate(value) if abs(value) < 1e4 else f"{fixed(value / 1e3, 1)}{SPACE}k"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction 0..1: 40.9 %; <0.1 % instead of a rounded 0."""
    if value is None:
        return ABSENT
    least = 10.0**-digits
    if 0 < value * 100 < least:
        return f"<{NARROW}{fixed(least, digits)}{NARROW}%"
    return f"{fixed(100 * value, digits)}{NARROW}%"


def seconds(value: float | None) -> str:
    """A step's time: 35.3 s; below a second in ms."""
    if value is None:
        return ABSENT
    if value < 1:
        return f"{fixed(1000 * value, 1 if value < 0.01 else 0)}{SPACE}ms"
    return f"{fixed(value, 1)}{SPACE}s"


def loss(value: Number | None) -> str:
    """0.872, NaN, ∞."""
    if value is None:
        return ABSENT
    return NOT_FINITE[value] if isinstance(value, str) else fixed(value, 3)


def is_bad(value: Number | None) -> bool:
    """Whether it is NaN or infinite, which is shown in red."""
    return isinstance(value, str)


def not_finite(numbers: JobNumbers) -> str:
    """How often loss or gradient norm was NaN or infinite, and since when; empty if never."""
    if not numbers.not_finite:
        return ""
    steps = plural(numbers.not_finite, "step")
    return f"NaN or infinite in {steps}, first in step {count(numbers.first_not_finite_step)}"


def duration(value_s: float | None) -> str:
    """Two units: 4 h 04 min, 1 min 05 s, 12 s."""
    if value_s is None:
        return ABSENT
    minutes, secs = divmod(max(0, round(value_s)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}{SPACE}d {hours:02}{SPACE}h"
    if hours:
        return f"{hours}{SPACE}h {minutes:02}{SPACE}min"
    if minutes:
        return f"{minutes}{SPACE}min {secs:02}{SPACE}s"
    return f"{secs}{SPACE}s"


def finish(now_s: float, remaining_s: float) -> str:
    """When a job is done: done 14:05, in 16 min 25 s."""
    return f"done {clock(now_s + remaining_s)[:-3]}, in {duration(remaining_s)}"


def clock(time_s: float) -> str:
    """Local time of day with seconds: 14:05:09."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def bit_rate(bytes_per_s: float | None) -> str:
    """Network speed, decimal: 941 Mbit/s, 9.41 Gbit/s."""
    if bytes_per_s is None:
        return ABSENT
    bits = bytes_per_s * 8
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= factor:
            return f"{_three_digits(bits / factor)}{SPACE}{unit}"
    return f"{fixed(bits, 0)}{SPACE}bit/s"


def memory(value_bytes: float | None) -> str:
    """Memory of machines and devices, binary: 23.7 GiB."""
    if value_bytes is None:
        return ABSENT
    gib = value_bytes / 2**30
    return (
        f"{fixed(gib, 1)}{SPACE}GiB" if gib >= 1 else f"{fixed(value_bytes / 2**20, 0)}{SPACE}MiB"
    )


def capacity(value: Capacity | None, now_s: float | None = None) -> str:
    """Capacity with its source and condition: 941 Mbit/s measured 12 s ago, beside a job.

    Args:
        now_s: Unix time, for the age.
    """
    if value is None:
        return "not measured"
    rate = bit_rate(value.bytes_per_s) + (" best seen, more than" if value.is_exceeded else "")
    if value.source == "given":
        return f"{rate} given" if value.is_exceeded else f"{rate} as given"
    age = f" {duration(now_s - value.time_s)} ago" if now_s is not None and value.time_s else ""
    disturbed = f", {value.condition}" if value.condition not in (None, "alone") else ""
    return f"{rate} measured{age}{disturbed}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spans(numbers: Iterable[int]) -> str:
    """Ranges of integers: 0–3, 6."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    words = [str(s[0]) if len(s) == 1 else f"{s[0]}–{s[-1]}" for s in found]
    return ", ".join(words) or ABSENT


def _three_digits(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = fixed(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text
