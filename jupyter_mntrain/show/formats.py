"""Numbers as people read them. Absent is a dash, never 0."""

from __future__ import annotations

NARROW = "\u202f"
FIXED = "\u00a0"
ABSENT = "–"


def whole(value: float | None, unit: str = "") -> str:
    """1857.3 → ``1,857``, with its unit behind a no-break space."""
    return ABSENT if value is None else f"{value:,.0f}{FIXED + unit if unit else ''}"


def percent(share: float | None) -> str:
    """0.4093 → ``40.9 %``."""
    return ABSENT if share is None else f"{100 * share:.1f}{NARROW}%"


def loss(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def bit_rate(bytes_per_s: float | None) -> str:
    """Bytes per second as ``122 Mbit/s`` or ``9.41 Gbit/s``."""
    if bytes_per_s is None:
        return ABSENT
    mega = bytes_per_s * 8 / 1e6
    if mega >= 10_000:
        return f"{mega / 1000:,.1f}{FIXED}Gbit/s"
    return f"{mega:,.0f}{FIXED}Mbit/s" if mega >= 10 else f"{mega:.1f}{FIXED}Mbit/s"


def gibibytes(value: float | None) -> str:
    return ABSENT if value is None else f"{value / 2**30:.1f}{FIXED}GiB"


def duration(seconds: float | None) -> str:
    """Two units: ``4 h 04 min``, ``5 min 46 s``, ``12 s``."""
    if seconds is None:
        return ABSENT
    total = int(seconds)
    if total >= 3600:
        return f"{total // 3600}{FIXED}h {total % 3600 // 60:02d}{FIXED}min"
    if total >= 60:
        return f"{total // 60}{FIXED}min {total % 60:02d}{FIXED}s"
    return f"{total}{FIXED}s"
