"""Retries: repeats a request whose reply was lost, safe because requests are idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import MAYBE_DONE, Kind

T = TypeVar("T")

PAUSES_S = (0.1, 0.4, 1.0)
"""Pauses before the second, third and fourth try of a request that got no answer."""


async def persist(
    ask: Callable[[], Awaitable[T]],
    *,
    kinds: Collection[Kind] = MAYBE_DONE,
    pauses_s: tuple[float, ...] = PAUSES_S,
) -> T:
    """Repeat a request until there is an answer, even a refusal, or no try is left.

    Raises:
        NodeError: the last try got no answer, or a failure is not one of ``kinds``.
    """
    for pause_s in pauses_s:
        try:
            return await ask()
        except NodeError as error:
            if error.kind not in kinds:
                raise
        await asyncio.sleep(pause_s)
    return await ask()
