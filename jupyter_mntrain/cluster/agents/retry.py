"""Retries: repeats a request whose reply was lost, safe because requests are idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar, get_args

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import NodeError, Silence

T = TypeVar("T")

PAUSES_S = tunables.pauses("connection.retry_pauses_s")

MAYBE_DONE: frozenset[Silence] = frozenset({"timed out", "broken off"})
"""The agent may have acted; only asking again tells."""

ANY_SILENCE: frozenset[Silence] = frozenset(get_args(Silence))


async def persist(
    ask: Callable[[], Awaitable[T]],
    *,
    reasons: Collection[Silence] = MAYBE_DONE,
    pauses_s: tuple[float, ...] = PAUSES_S,
) -> T:
    """Ask until there is an answer, be it a refusal, or the tries are used up.

    Raises:
        NodeError: no answer to the last try, or silence of a kind that is not in ``reasons``.
    """
    for pause_s in pauses_s:
        try:
            return await ask()
        except NodeError as error:
            if error.reason not in reasons:
                raise
        await asyncio.sleep(pause_s)
    return await ask()
