"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 180.0
"""For whatever should happen at once or in seconds, on a machine that is busy with other work."""

SOON_S, LATER_S = 0.01, 0.1
"""Between two looks, at first and after a while: looking takes time of the processors that others
need, most of it that of agents, which are asked."""


def pauses() -> Iterator[float]:
    """Yield how long to wait between looks."""
    pause_s = SOON_S
    while True:
        yield pause_s
        pause_s = min(LATER_S, 1.2 * pause_s)


def until(
    condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S
) -> None:
    deadline, pause = time.monotonic() + patience_s, pauses()
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(next(pause))


async def coming(
    condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S
) -> None:
    """As :func:`until`, while the event loop runs on."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(0.005)
