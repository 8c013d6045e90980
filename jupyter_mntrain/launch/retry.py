"""Retries: repeats a request whose reply was lost, safe because requests are idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import MAYBE_DONE, Kind

T = TypeVar("T")

PAUSES_S = tunables.pauses("connection.retry_pauses_s")


async def persist(
    ask: Callable[[], Awaitable[T]],
    *,
    kinds: Collection[Kind] = MAYBE_DONE,
    pauses_s: tuple[float, ...] = PAUSES_S,
) -> T:
    """Ask until there is an answer, be it a refusal, or the tries are used up.

    Raises:
        NodeError: no answer to the last try, or silence of a kind that is not in ``kinds``.
    """
    for pause_s in pauses_s:
        try:
            return await ask()
        except NodeError as error:
            if error.kind not in kinds:
                raise
        await asyncio.sleep(pause_s)
    return await ask()
