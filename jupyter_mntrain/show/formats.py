"""Formats: how numbers, times and states are spelled, everywhere.

Thousands take a comma, a percent sign a narrow no-break space, a unit a no-break space. What is
not known is a dash, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.node import Capacity

ABSENT: Final = "–"
NARROW: Final = "\u202f"
SPACE: Final = "\u00a0"

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
    """What a model wrote: white space as one space, and nothing that a terminal would obey."""
    return "".join(one if one.isprintable() else "\ufffd" for one in " ".join(text.split()))


def count(value: float | None) -> str:
    """A whole number: 1,857."""
    return ABSENT if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """For charts: 1,857, but 63.4 k from ten thousand on."""
    if value is None:
        return ABSENT
    return count(value) if abs(value) < 1e4 else f"{value / 1e3:,.1f}{SPACE}k"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction 0..1: 40.9 %; what would round to nothing is < 0.1 %."""
    if value is None:
        return ABSENT
    least = 10.0**-digits
    if 0 < value * 100 < least:
        return f"<{NARROW}{least:.{digits}f}{NARROW}%"
    return f"{value * 100:.{digits}f}{NARROW}%"


def seconds(value: float | None) -> str:
    """A step's time: 35.3 s; below a second in ms."""
    if value is None:
        return ABSENT
    return f"{value * 1e3:.0f}{SPACE}ms" if value < 1 else f"{value:.1f}{SPACE}s"


def loss(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


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


def clock(time_s: float) -> str:
    """Local time of day, with seconds: for logs and causes."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def bit_rate(bytes_per_s: float | None) -> str:
    """Network speed, decimal: 941 Mbit/s, 9.41 Gbit/s."""
    if bytes_per_s is None:
        return ABSENT
    bits = bytes_per_s * 8
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= factor:
            return f"{_three_digits(bits / factor)}{SPACE}{unit}"
    return f"{bits:.0f}{SPACE}bit/s"


def memory(value_bytes: float | None) -> str:
    """Memory of machines and devices, binary: 23.7 GiB."""
    if value_bytes is None:
        return ABSENT
    gib = value_bytes / 2**30
    return f"{gib:.1f}{SPACE}GiB" if gib >= 1 else f"{value_bytes / 2**20:.0f}{SPACE}MiB"


def capacity(value: Capacity | None) -> str:
    """With its source, always: 941 Mbit/s measured."""
    if value is None:
        return "not measured"
    said = {"measured": "measured", "given": "as given", "nominal": "says the card"}
    return f"{bit_rate(value.bytes_per_s)} {said[value.source]}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spans(numbers: Iterable[int]) -> str:
    """0–3, 6."""
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
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
