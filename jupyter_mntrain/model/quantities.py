"""Quantities: parses and writes durations and sizes such as ``90s`` and ``64 KiB``, writes lists,
and groups items by size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TypeVar

T = TypeVar("T")

SPACE = "\u00a0"
"""Between a number and its unit."""

_DURATION_UNITS = {
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]+)")


def parse_duration(text: str) -> float:
    """Convert ``90s``, ``30m``, ``2h`` or ``7d`` to seconds.

    Raises:
        ValueError: it has another form; one line says how to write it.
    """
    match = _QUANTITY.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in _DURATION_UNITS:
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 2h or 7d")
    return float(match["number"]) * _DURATION_UNITS[match["unit"]]


def parse_size(text: str) -> int:
    """Convert ``64 KiB`` or ``1.5 GiB`` to bytes.

    Raises:
        ValueError: it has another form; one line says how to write it.
    """
    match = _QUANTITY.fullmatch(text.strip())
    units = {name.lower(): size for name, size in _SIZE_UNITS.items()}
    if match is None or match["unit"].lower() not in units:
        raise ValueError(f"{text!r} is not a size; write it like 64 KiB, 16 MiB or 1.5 GiB")
    return round(float(match["number"]) * units[match["unit"].lower()])


def duration_text(value_s: float) -> str:
    """Write a duration in at most two units: 4 h 04 min, 1 min 05 s, 12 s."""
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


def size_text(size_bytes: int) -> str:
    """Write a size like ``16 MiB``, in the largest unit that keeps it a whole number."""
    unit = max(
        (name for name, size in _SIZE_UNITS.items() if size_bytes % size == 0),
        key=_SIZE_UNITS.__getitem__,
    )
    return f"{size_bytes // _SIZE_UNITS[unit]} {unit}"


def rough_bit_rate(bytes_per_s: float) -> str:
    """Write a network's speed like ``2.4 Gbit/s``, rounded."""
    rate = bytes_per_s * 8
    if rate >= 1e9:
        return f"{rate / 1e9:.1f} Gbit/s"
    return f"{rate / 1e6:.0f} Mbit/s" if rate >= 1e6 else f"{rate / 1e3:.0f} kbit/s"


def rough_size(size_bytes: float) -> str:
    """Write a size like ``1.2 MB``, rounded."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = 0
    while size_bytes >= 1000 and power < len(units) - 1:
        size_bytes, power = size_bytes / 1000, power + 1
    return f"{size_bytes:.{1 if power and size_bytes < 100 else 0}f} {units[power]}"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Write a noun with its numbers, like ``GPU 0`` or ``GPUs 0, 1``."""
    return f"{noun}{agreeing(numbers, '', 's')} {', '.join(map(str, numbers))}"


def listed(names: Sequence[str]) -> str:
    """Join names, like ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def agreeing(things: Sized, one: str, many: str) -> str:
    """Return the singular or plural form of a word, by the number of things."""
    return one if len(things) == 1 else many


def by_size(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int) -> Iterator[list[T]]:
    """Split items, in order, into groups of at most ``most_bytes`` (or one item)."""
    group: list[T] = []
    held = 0
    for item in items:
        size = size_of(item)
        if group and held + size > most_bytes:
            yield group
            group, held = [], 0
        group.append(item)
        held += size
    if group:
        yield group
