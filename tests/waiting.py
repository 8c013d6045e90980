"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 180.0
"""For whatever should happen at once or in seconds, on a machine that is busy with other work."""


def until(
    condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.02)


async def coming(
    condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S
) -> None:
    """As :func:`until`, while the event loop runs on."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(0.005)
